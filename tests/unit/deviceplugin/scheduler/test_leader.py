"""Which replica leads, on clocks that the test moves."""

import copy
import json
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from deviceplugin.kube.api_client import ApiRefused, ApiServer, ApiUnreachable
from deviceplugin.scheduler.binding import leader
from deviceplugin.scheduler.binding.leader import LEASE_S, RENEW_S, SETTLE_S, Election, Identity

FOLDER = "/apis/coordination.k8s.io/v1/namespaces/vgpu/leases"


class Store:
    """One Lease, kept as an API server would.

    Attributes:
        down: for whom no call is answered, by the place of its election.
    """

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.version = 0
        self.down: set[str] = set()
        self.lose_answer = False
        self.calls: list[str] = []

    def call(
        self, api: ApiServer, method: str, path: str, body: Any = None, **_: Mapping[str, str]
    ) -> bytes:
        if api.where in self.down:
            raise ApiUnreachable("no answer")
        self.calls.append(method)
        assert path == (FOLDER if method == "POST" else f"{FOLDER}/lead")
        if method == "POST" and self.lease is not None:
            raise ApiRefused(409, "exists")
        if method != "POST" and self.lease is None:
            raise ApiRefused(404, "no such Lease")
        if method != "GET":
            new = json.loads(msgspec.json.encode(body))
            if method == "PUT":
                assert self.lease is not None
                if new["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]:
                    raise ApiRefused(409, "modified")
            self.version += 1
            new["metadata"]["resourceVersion"] = str(self.version)
            self.lease = new
        if self.lose_answer:
            raise ApiUnreachable("the answer is lost")
        return json.dumps(self.lease).encode()

    @property
    def holder(self) -> str:
        assert self.lease is not None
        return str(self.lease["spec"]["holderIdentity"])


class Replica:
    """A candidate with a clock of its own."""

    def __init__(self, name: str, now_s: float) -> None:
        self.now_s = now_s
        self.api = ApiServer(name, 443, None)  # type: ignore[arg-type]
        self.where = self.api.where
        identity = Identity(name, f"{name}:8443")
        self.election = Election(self.api, "vgpu", "lead", identity, lambda: self.now_s)

    @property
    def leads(self) -> bool:
        return self.election.is_leader


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Store:
    store = Store()
    monkeypatch.setattr(leader, "call", store.call)
    return store


@pytest.fixture
def pair(store: Store) -> tuple[Replica, Replica]:
    return Replica("a", 100.0), Replica("b", 9000.0)


def pass_time(pair: tuple[Replica, Replica], seconds: float) -> None:
    for each in pair:
        each.now_s += seconds


def test_the_first_to_write_leads_and_renews(store: Store, pair: tuple[Replica, Replica]) -> None:
    a, b = pair
    assert a.election.step()
    assert not a.leads  # its watch has still to bring what one before did
    pass_time(pair, SETTLE_S)
    assert a.leads and not b.leads
    for _ in range(20):
        assert a.election.step()
        assert not b.election.step()
        pass_time(pair, 2.0)
        assert a.leads and not b.leads
    assert b.election.leader_address == "a:8443" == a.election.leader_address
    assert store.lease is not None
    assert store.lease["spec"]["leaseTransitions"] == 0
    assert store.lease["spec"]["leaseDurationSeconds"] == 15
    assert store.lease["spec"]["acquireTime"] < store.lease["spec"]["renewTime"]


def test_renewing_needs_one_call(store: Store, pair: tuple[Replica, Replica]) -> None:
    a, _ = pair
    a.election.step()
    store.calls.clear()
    a.election.step()

    assert store.calls == ["PUT"]


def test_who_cannot_renew_leads_no_more_before_another_does(
    store: Store, pair: tuple[Replica, Replica]
) -> None:
    a, b = pair
    a.election.step()
    b.election.step()
    store.down.add(a.where)
    led_at: dict[str, list[float]] = {"a": [], "b": []}
    for step in range(60):
        pass_time(pair, 0.5)
        a.election.step()
        b.election.step()
        assert not (a.leads and b.leads)
        for name, each in (("a", a), ("b", b)):
            if each.leads:
                led_at[name].append(step * 0.5 + 0.5)

    assert led_at["a"][-1] < RENEW_S
    assert led_at["b"][0] >= LEASE_S
    assert led_at["b"][0] <= LEASE_S + 1.0 + SETTLE_S
    assert store.lease is not None and store.lease["spec"]["leaseTransitions"] == 1
    store.down.clear()
    assert not a.election.step()
    assert a.election.leader_address == "b:8443"


def test_a_leader_whose_thread_hangs_leads_no_more(pair: tuple[Replica, Replica]) -> None:
    a, _ = pair
    a.election.step()
    pass_time(pair, RENEW_S)

    assert not a.leads


def test_a_slow_answer_counts_from_when_it_was_asked_for(
    store: Store, pair: tuple[Replica, Replica], monkeypatch: pytest.MonkeyPatch
) -> None:
    a, _ = pair

    def slow(*arguments: Any, **more: Any) -> bytes:
        a.now_s += RENEW_S + 1
        return store.call(*arguments, **more)

    monkeypatch.setattr(leader, "call", slow)
    a.election.step()
    a.now_s += SETTLE_S

    assert not a.leads


def test_the_times_in_the_lease_are_nobodys_clock(
    store: Store, pair: tuple[Replica, Replica]
) -> None:
    a, b = pair
    a.election.step()
    assert store.lease is not None
    store.lease["spec"]["renewTime"] = "1970-01-01T00:00:00.000000Z"
    store.lease["metadata"]["resourceVersion"] = "1"
    assert not b.election.step()
    pass_time(pair, LEASE_S - 0.1)
    assert not b.election.step()
    pass_time(pair, 0.1)

    assert b.election.step()


def test_one_of_two_that_write_at_once_is_refused(
    store: Store, pair: tuple[Replica, Replica], monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = pair
    store.lease = {"metadata": {"name": "lead", "resourceVersion": "0"}, "spec": {}}

    def b_first(*arguments: Any, **more: Any) -> bytes:
        if arguments[1] == "PUT":
            monkeypatch.setattr(leader, "call", store.call)
            assert b.election.step()
        return store.call(*arguments, **more)

    monkeypatch.setattr(leader, "call", b_first)

    assert not a.election.step()
    assert store.holder == "b/b:8443"


def test_a_lease_that_is_given_back_is_taken_at_once(
    store: Store, pair: tuple[Replica, Replica]
) -> None:
    a, b = pair
    a.election.step()
    pass_time(pair, SETTLE_S)
    assert not b.election.step()
    a.election.stop()

    assert not a.leads
    assert store.holder == ""
    pass_time(pair, 0.1)
    assert b.election.step()
    assert b.election.leader_address == "b:8443"


def test_who_does_not_lead_gives_nothing_back(store: Store, pair: tuple[Replica, Replica]) -> None:
    a, b = pair
    a.election.step()
    b.election.step()
    b.election.stop()

    assert store.holder == "a/a:8443"


def test_an_answer_that_is_lost_is_found_out(store: Store, pair: tuple[Replica, Replica]) -> None:
    a, _ = pair
    a.election.step()
    store.lose_answer = True
    pass_time(pair, 2.0)
    assert not a.election.step()
    assert a.leads  # it was renewed in time before
    store.lose_answer = False
    pass_time(pair, 2.0)

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
    store: Store, pair: tuple[Replica, Replica], spec: dict[str, Any]
) -> None:
    a, _ = pair
    store.lease = {"metadata": {"resourceVersion": "0", "labels": {"a": "b"}}, "spec": spec}
    before = copy.deepcopy(store.lease)
    a.election.step()
    pass_time(pair, 301.0)

    assert a.election.step()
    assert store.lease["metadata"]["labels"] == before["metadata"]["labels"]


def test_a_malformed_lease_is_no_end(store: Store, pair: tuple[Replica, Replica]) -> None:
    a, _ = pair
    store.lease = {"metadata": {"resourceVersion": "0"}, "spec": {"holderIdentity": 5}}

    assert not a.election.step()
    assert a.election.leader_address == ""


def test_an_identity_is_read_again() -> None:
    for each in (Identity("pod-1_ab/c", "[fd00::1]:8443"), Identity("p", "")):
        assert Identity.parsed(str(each)) == each
    assert Identity.parsed("somebody") == Identity("somebody", "")
