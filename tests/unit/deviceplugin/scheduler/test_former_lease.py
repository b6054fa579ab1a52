"""An upgrade from replicas that elect by a Lease which every node agent may write."""

import random
from pathlib import Path

import pytest

from deviceplugin.kube.api_client import ApiServer
from deviceplugin.scheduler.binding.former_lease import FormerLease
from deviceplugin.scheduler.binding.leader import (
    LEASE_S,
    RENEW_S,
    RETRY_S,
    SETTLE_S,
    Election,
    Identity,
)
from support.scheduler.leases import Leases

AGENTS, OURS = "vgpu", "vgpu-election"


class Replica:
    """A candidate, of this release or of an earlier one."""

    def __init__(self, cluster: "Cluster", name: str, is_new: bool = True) -> None:
        self.api = ApiServer(name, 443, Path("/nowhere"))
        self.name, self.where = name, self.api.where
        self.election = Election(
            self.api,
            OURS if is_new else AGENTS,
            "lead",
            Identity(name, f"{name}:8443"),
            lambda: cluster.now_s,
            FormerLease(self.api, AGENTS, "lead") if is_new else None,
        )
        self.next_s = cluster.now_s


class Cluster:
    """Replicas whose turns come as their threads would have them; never may two lead."""

    def __init__(self, store: Leases, seed: int) -> None:
        self.store, self.chance = store, random.Random(seed)
        self.now_s = 100.0
        self.replicas: list[Replica] = []

    def start(self, name: str, is_new: bool = True) -> Replica:
        self.replicas.append(Replica(self, name, is_new))
        return self.replicas[-1]

    def stop(self, replica: Replica) -> None:
        self.replicas.remove(replica)
        replica.election.stop()

    def run(self, seconds: float) -> float:
        """Returns for how long nobody led."""
        idle_s, end_s = 0.0, self.now_s + seconds
        while self.now_s < end_s:
            for each in self.chance.sample(self.replicas, len(self.replicas)):
                if each.next_s <= self.now_s:
                    held = each.election.step()
                    again_s = RETRY_S * (1.0 if held else self.chance.uniform(1.0, 2.2))
                    each.next_s = self.now_s + again_s
            leaders = [each.name for each in self.replicas if each.election.is_leader]
            assert len(leaders) <= 1, f"{leaders} bind at once"
            idle_s += 0.0 if leaders else 0.1
            self.now_s += 0.1
        return idle_s


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Leases:
    return Leases(monkeypatch)


@pytest.mark.parametrize("seed", range(20))
def test_in_a_rolling_upgrade_one_replica_binds_at_a_time(store: Leases, seed: int) -> None:
    cluster = Cluster(store, seed)
    old = [cluster.start(name, is_new=False) for name in ("old-1", "old-2")]
    cluster.run(30.0)
    new: list[Replica] = []
    for each in old:
        new.append(cluster.start(f"new-{len(new) + 1}"))
        idle_s = cluster.run(30.0)
        # Those that noticed stop at once, and the new one waits until all must have.
        assert idle_s <= RENEW_S + 3 * RETRY_S
        assert {r.election.leader_address for r in cluster.replicas} == {"new-1:8443"}
        cluster.stop(each)
        cluster.run(5.0)
    # Afterwards it changes hands as quickly as ever.
    cluster.stop(new[0])
    assert cluster.run(20.0) <= 2.2 * RETRY_S + SETTLE_S + 0.3
    assert store.holder(OURS) == store.holder(AGENTS) == "new-2/new-2:8443"


@pytest.mark.parametrize("seed", range(5))
def test_an_old_leader_that_hears_nothing_is_waited_for(store: Leases, seed: int) -> None:
    cluster = Cluster(store, seed)
    old = cluster.start("old", is_new=False)
    cluster.run(10.0)
    cluster.start("new")
    store.down.add(old.where)

    cluster.run(LEASE_S + RENEW_S)
    assert store.holder(AGENTS) == "new/new:8443"


def test_who_writes_the_former_lease_stops_nobody(store: Leases) -> None:
    cluster = Cluster(store, 1)
    store.leases[AGENTS] = {"metadata": {"resourceVersion": "x"}, "spec": {}}
    first, second = cluster.start("first"), cluster.start("second")
    began_s = cluster.now_s
    while not (first.election.is_leader or second.election.is_leader):
        store.write(AGENTS, "PATCH", {"spec": {"holderIdentity": "evil/10.0.0.1:1"}})
        cluster.run(0.1)
        assert cluster.now_s - began_s < RENEW_S + 3 * RETRY_S
    for _ in range(600):
        store.write(AGENTS, "PATCH", {"spec": {"holderIdentity": "evil/10.0.0.1:1"}})
        assert cluster.run(0.1) == 0.0
        for each in (first, second):
            assert each.election.leader_address in ("first:8443", "second:8443")


def test_where_there_was_none_none_is_made(store: Leases) -> None:
    cluster = Cluster(store, 1)
    one = cluster.start("one")

    assert cluster.run(10.0) <= SETTLE_S + 0.2
    assert list(store.leases) == [OURS]
    cluster.stop(one)
    assert list(store.leases) == [OURS]


def test_without_the_right_to_it_the_former_one_is_let_be(store: Leases) -> None:
    cluster = Cluster(store, 1)
    store.leases[AGENTS] = {"metadata": {}, "spec": {"holderIdentity": "old"}}
    store.forbidden[AGENTS] = {"GET", "PATCH"}
    cluster.start("one")

    assert cluster.run(30.0) <= SETTLE_S + 0.2
    assert store.holder(AGENTS) == "old"
