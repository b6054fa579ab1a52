"""Which replica leads, on clocks that the test moves."""

from pathlib import Path
from typing import Any

import pytest

from deviceplugin.kube.api_client import ApiServer
from deviceplugin.scheduler.binding import leader
from deviceplugin.scheduler.binding.leader import LEASE_S, RENEW_S, SETTLE_S, Election, Identity
from support.scheduler.leases import Leases

WHERE = "vgpu"


class Replica:
    """A candidate with a clock of its own."""

    def __init__(self, name: str, now_s: float) -> None:
        self.now_s = now_s
        self.api = ApiServer(name, 443, Path("/nowhere"))
        self.where = self.api.where
        identity = Identity(name, f"{name}:8443")
        self.election = Election(self.api, WHERE, "lead", identity, lambda: self.now_s)

    @property
    def leads(self) -> bool:
        return self.election.is_leader


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Leases:
    return Leases(monkeypatch)


@pytest.fixture
def a(store: Leases) -> Replica:
    return Replica("a", 100.0)


@pytest.fixture
def b(store: Leases) -> Replica:
    return Replica("b", 9000.0)


def pass_time(*replicas: Replica, seconds: float) -> None:
    for each in replicas:
        each.now_s += seconds


def test_the_first_to_write_leads_and_renews(store: Leases, a: Replica, b: Replica) -> None:
    assert a.election.step()
    assert not a.leads  # its watch has still to bring what one before did
    pass_time(a, b, seconds=SETTLE_S)
    assert a.leads and not b.leads
    for _ in range(20):
        assert a.election.step()
        assert not b.election.step()
        pass_time(a, b, seconds=2.0)
        assert a.leads and not b.leads
    assert b.election.leader_address == "a:8443" == a.election.leader_address
    assert store.leases[WHERE]["spec"]["leaseTransitions"] == 0
    assert store.leases[WHERE]["spec"]["leaseDurationSeconds"] == 15
    assert store.leases[WHERE]["spec"]["acquireTime"] < store.leases[WHERE]["spec"]["renewTime"]


def test_renewing_needs_one_call(store: Leases, a: Replica) -> None:
    a.election.step()
    store.calls.clear()
    a.election.step()

    assert store.calls == ["PUT"]


def test_who_cannot_renew_leads_no_more_before_another_does(
    store: Leases, a: Replica, b: Replica
) -> None:
    a.election.step()
    b.election.step()
    store.down.add(a.where)
    led_at: dict[str, list[float]] = {"a": [], "b": []}
    for step in range(60):
        pass_time(a, b, seconds=0.5)
        a.election.step()
        b.election.step()
        assert not (a.leads and b.leads)
        for name, each in (("a", a), ("b", b)):
            if each.leads:
                led_at[name].append(step * 0.5 + 0.5)

    assert led_at["a"][-1] < RENEW_S
    assert led_at["b"][0] >= LEASE_S
    assert led_at["b"][0] <= LEASE_S + 1.0 + SETTLE_S
    assert store.leases[WHERE]["spec"]["leaseTransitions"] == 1
    store.down.clear()
    assert not a.election.step()
    assert a.election.leader_address == "b:8443"


def test_a_leader_whose_thread_hangs_leads_no_more(a: Replica) -> None:
    a.election.step()
    pass_time(a, seconds=RENEW_S)

    assert not a.leads


def test_a_slow_answer_counts_from_when_it_was_asked_for(
    store: Leases, a: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:

    def slow(*arguments: Any, **more: Any) -> bytes:
        a.now_s += RENEW_S + 1
        return store.call(*arguments, **more)

    monkeypatch.setattr(leader, "call", slow)
    a.election.step()
    a.now_s += SETTLE_S

    assert not a.leads


def test_the_times_in_the_lease_are_nobodys_clock(store: Leases, a: Replica, b: Replica) -> None:
    a.election.step()
    store.leases[WHERE]["spec"]["renewTime"] = "1970-01-01T00:00:00.000000Z"
    store.leases[WHERE]["metadata"]["resourceVersion"] = "1"
    assert not b.election.step()
    pass_time(a, b, seconds=LEASE_S - 0.1)
    assert not b.election.step()
    pass_time(a, b, seconds=0.1)

    assert b.election.step()


def test_one_of_two_that_write_at_once_is_refused(
    store: Leases, a: Replica, b: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.leases[WHERE] = {"metadata": {"name": "lead", "resourceVersion": "0"}, "spec": {}}

    def b_first(*arguments: Any, **more: Any) -> bytes:
        if arguments[1] == "PUT":
            monkeypatch.setattr(leader, "call", store.call)
            assert b.election.step()
        return store.call(*arguments, **more)

    monkeypatch.setattr(leader, "call", b_first)

    assert not a.election.step()
    assert store.holder(WHERE) == "b/b:8443"


def test_a_lease_that_is_given_back_is_taken_at_once(store: Leases, a: Replica, b: Replica) -> None:
    a.election.step()
    pass_time(a, b, seconds=SETTLE_S)
    assert not b.election.step()
    a.election.stop()

    assert not a.leads
    assert store.holder(WHERE) == ""
    pass_time(a, b, seconds=0.1)
    assert b.election.step()
    assert b.election.leader_address == "b:8443"


def test_who_does_not_lead_gives_nothing_back(store: Leases, a: Replica, b: Replica) -> None:
    a.election.step()
    b.election.step()
    b.election.stop()

    assert store.holder(WHERE) == "a/a:8443"


def test_an_answer_that_is_lost_is_found_out(store: Leases, a: Replica) -> None:
    a.election.step()
    store.lose_answer = True
    pass_time(a, seconds=2.0)
    assert not a.election.step()
    assert a.leads  # it was renewed in time before
    store.lose_answer = False
    pass_time(a, seconds=2.0)

    assert a.election.step()
    assert a.leads


@pytest.mark.parametrize(
    "spec",
    [
        {"holderIdentity": "x", "leaseDurationSeconds": 10**9},
        {"holderIdentity": "x/y:1", "leaseDurationSeconds": -5},
        {"holderIdentity": None, "leaseDurationSeconds": None},
        {},
    ],
)
def test_a_strange_lease_holds_nobody_up_for_ever(
    store: Leases, a: Replica, spec: dict[str, Any]
) -> None:
    metadata = {"resourceVersion": "0", "labels": {"a": "b"}}
    store.leases[WHERE] = {"metadata": metadata, "spec": spec}
    a.election.step()
    pass_time(a, seconds=301.0)

    assert a.election.step()
    assert store.leases[WHERE]["metadata"]["labels"] == {"a": "b"}


def test_a_malformed_lease_is_no_end(store: Leases, a: Replica) -> None:
    store.leases[WHERE] = {"metadata": {"resourceVersion": "0"}, "spec": {"holderIdentity": 5}}

    assert not a.election.step()
    assert a.election.leader_address == ""


def test_an_identity_is_read_again() -> None:
    for each in (Identity("pod-1_ab/c", "[fd00::1]:8443"), Identity("p", "")):
        assert Identity.parsed(str(each)) == each
    assert Identity.parsed("somebody") == Identity("somebody", "")
