"""What the extender binds is not refused: random pods on simulated nodes, thousands in long form.

While the API server fails an agent may refuse one of 1000; else none.

The nodes have the agent's real core and a kubelet that calls it directly, the API server and the
scheduler are simulated (`benchmarks/simulated_cluster`).
"""

import os
import random
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from benchmarks.simulated_cluster import agent_cluster
from benchmarks.simulated_cluster.agent_cluster import NAMESPACE, AgentCluster
from benchmarks.simulated_cluster.extender_client import ExtenderClient
from benchmarks.simulated_cluster.machines import CORE, HALF_WHOLE, MEMORY, MIXED
from benchmarks.simulated_cluster.pod_shapes import Shape
from benchmarks.simulated_cluster.scheduler import SimulatedScheduler
from deviceplugin.core import pod_knowledge
from deviceplugin.kube import inventory_lease
from deviceplugin.scheduler.search.node_view import NodeView
from support import IS_LONG
from support.scheduler.here import ExtenderHere
from support.scheduler.lives import CALM_STEPS, STEPS, ClusterLife
from support.scheduler.over_http import ExtenderOverHttp
from support.waiting import wait_until

#: Each life has its own seed, the same each time; VGPU_SEED is another one, or ``random``.
LIVES = 2 if IS_LONG else 1
ADMITTED = 1200 if IS_LONG else 60
OFTEN_KILLED = {**CALM_STEPS, "begin again": 20}


@pytest.fixture
def folder() -> Iterator[Path]:
    """In memory: the agents' files would wait for a disk that a node's run directory is not on."""
    base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="vgpu-", dir=base) as name:
        yield Path(name)


def chosen_seed(usual: int) -> int:
    """Returns the seed of a life and prints it."""
    wanted = os.environ.get("VGPU_SEED") or str(usual)
    seed = random.SystemRandom().randrange(1 << 32) if wanted == "random" else int(wanted)
    print(f"seed {seed}")
    return seed


class WallClock:
    """The time of day, which somebody sets."""

    def __init__(self) -> None:
        self._now_s = time.time
        self.offset_s = 0.0

    def __call__(self) -> float:
        return self._now_s() + self.offset_s

    def jump(self, by_s: float) -> None:
        self.offset_s += by_s


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("life", range(LIVES))
@pytest.mark.parametrize("steps", [CALM_STEPS, STEPS], ids=["calm", "faults"])
def test_no_pod_that_was_bound_is_refused(
    folder: Path, steps: Mapping[str, int], life: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seed = chosen_seed(life)
    clock = WallClock()
    monkeypatch.setattr(time, "time", clock)
    # All nodes, their kubelets and the API server share one interpreter here.
    monkeypatch.setattr(pod_knowledge, "PATIENCE_S", 1.0)
    monkeypatch.setattr(inventory_lease, "BACKOFF_MOST_S", 2.0)
    with AgentCluster(folder, MIXED * 2, seed) as cluster:
        wait_published(cluster)
        extender = ExtenderHere(cluster.server.api, NAMESPACE)
        scheduler = SimulatedScheduler(
            cluster.server.store, cluster.allocatable, ExtenderClient(extender.send), pause_s=0.2
        )
        scheduler.start()
        try:
            lives = ClusterLife(cluster, scheduler, extender.restart, clock.jump, seed, steps)
            lives.run(ADMITTED // 2)
            extender.restart()  # and whenever the seed says so
            lives.run(ADMITTED)
            wait_until(
                lambda: not taken(cluster, extender), f"seed {seed}: nothing is taken any more"
            )
        finally:
            scheduler.stop()
            extender.stop()
    print(
        f"{cluster.admitted} admitted, {scheduler.counted}, restarts {extender.restarts}, "
        f"unknown to the agent {sum(node.unknown for node in cluster.nodes.values())}, "
        f"on other GPUs {sum(node.elsewhere for node in cluster.nodes.values())}"
    )


def wait_published(cluster: AgentCluster) -> None:
    """Waits until all agents have published what their nodes have."""
    wait_until(
        lambda: cluster.server.counted["POST leases"] >= len(cluster.nodes), "all have published"
    )


def taken(cluster: AgentCluster, extender: ExtenderHere) -> dict[str, NodeView]:
    """Returns the nodes of which the extender believes that somebody has something."""
    found = {}
    for name in cluster.nodes:
        seen = extender.cluster.view(name)
        assert seen is not None, f"{name} has no inventory"
        gpus_are_free = all(gpu.is_empty for gpu in seen[1].gpus)
        if not gpus_are_free or any(r.free != r.total for r in seen[1].devices.values()):
            found[name] = seen[1]
    return found


@pytest.mark.timeout(1800)
def test_nor_is_one_that_a_process_bound_which_is_killed_now_and_then(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same over HTTP; the process has its own clock, and as much patience as in a cluster."""
    seed = chosen_seed(0)
    monkeypatch.setattr(pod_knowledge, "PATIENCE_S", 1.0)
    with AgentCluster(folder, MIXED, seed) as cluster:
        wait_published(cluster)
        extender = ExtenderOverHttp(cluster.server, folder, NAMESPACE)
        scheduler = SimulatedScheduler(
            cluster.server.store, cluster.allocatable, ExtenderClient(extender.send), pause_s=0.2
        )
        scheduler.start()
        try:
            lives = ClusterLife(
                cluster, scheduler, extender.restart, lambda by_s: None, seed, OFTEN_KILLED
            )
            lives.run(ADMITTED // 2)
            extender.restart()
            lives.run(ADMITTED)
        finally:
            scheduler.stop()
            extender.stop()
    print(f"{cluster.admitted} admitted, {scheduler.counted}, restarts {extender.restarts}")


def test_what_ended_just_before_the_extender_began_still_counts(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a pod that has ended no list tells, and its agent has not written yet what it had."""
    monkeypatch.setattr(agent_cluster, "LOOK_EVERY_S", 1.0)
    with AgentCluster(folder, [HALF_WHOLE], 1) as cluster:
        wait_published(cluster)
        extender = ExtenderHere(cluster.server.api, NAMESPACE)
        scheduler = SimulatedScheduler(
            cluster.server.store, cluster.allocatable, ExtenderClient(extender.send), pause_s=0.2
        )
        scheduler.start()
        try:
            wait_until(lambda: not extender.follower.settles_in_s, "it knows the cluster")
            whole = cluster.create(Shape([{CORE: 200}]))
            wait_until(lambda: bool(cluster.running()), "the first one runs")
            cluster.end(cluster.pod("default", whole.name))
            wait_until(lambda: not cluster.running(), "the first one has ended")
            extender.restart()
            cluster.create(Shape([{CORE: 50, MEMORY: 20}]))
            wait_until(
                lambda: cluster.admitted == 2 or bool(cluster.refusals),
                "the second one is admitted or refused",
            )
            assert not cluster.refusals
        finally:
            scheduler.stop()
            extender.stop()
