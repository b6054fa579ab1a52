"""The agent knows the pods of its node from the API server, and packs them on few GPUs."""

import random
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from benchmarks.simulated_cluster.kinds import POD
from deviceplugin.kube import list_watch
from deviceplugin.kube.node_pods import NodePods
from deviceplugin.kubelet import followed_pods
from deviceplugin.model.chosen_gpus import ChosenGpus
from deviceplugin.model.gpus import Gpu, GpuListing
from deviceplugin.testing import AdmittedPod, ContainerManifest, PodManifest
from support.api_server.cluster_server import ClusterServer
from support.node.in_process import GIB, InProcessNode, running_node
from support.waiting import wait_until
from vgpuctl.agent_client import agent_report, metrics_page

GPUS = tuple(Gpu(i, f"GPU-{i:08x}-0000-0000-0000-000000000000", "test", 80 * GIB) for i in range(8))
CONFIG = """\
version: v1
sharing: {fractional: [{family: vgpu, memoryUnit: 1Gi}]}
"""
SMALL = {"vgpu-core": 10, "vgpu-memory": 8}
NODE = "test-node"


class Cluster:
    """A node, and the API server that tells of its pods."""

    def __init__(self, node: InProcessNode, server: ClusterServer, made: list[NodePods]) -> None:
        self.node, self.server, self._made = node, server, made

    def pods(self) -> NodePods:
        return self._made[-1]

    def bind(
        self,
        name: str,
        *containers: Mapping[str, int],
        init: int = 0,
        gpus: Mapping[str, tuple[str, ...]] | None = None,
        of_node: str = NODE,
    ) -> PodManifest:
        """Binds a pod and waits until the agent knows; its first ``init`` ones are plain init."""
        made = [
            ContainerManifest(f"c{i}", limits={f"nvidia.com/{k}": n for k, n in each.items()})
            for i, each in enumerate(containers)
        ]
        annotations = {}
        if gpus is not None:
            annotations["nvidia.com/vgpu.gpus"] = ChosenGpus(of_node, gpus).encoded()
        specs: list[dict[str, Any]] = [
            {"name": c.name, "resources": {"limits": {k: str(n) for k, n in c.limits.items()}}}
            for c in made
        ]
        self.server.put(
            POD, name, metadata={"uid": f"u-{name}", "annotations": annotations},
            spec={"nodeName": NODE, "initContainers": specs[:init], "containers": specs[init:]},
            status={"phase": "Pending"},
        )  # fmt: skip
        wait_until(lambda: ("default", name) in self.pods().seen().names)
        return PodManifest(
            name=name, init_containers=tuple(made[:init]), containers=tuple(made[init:])
        )

    def admit(self, name: str, *containers: Mapping[str, int], **how: Any) -> AdmittedPod:
        return self.node.kubelet.admit(self.bind(name, *containers, **how))


def gpus_of(*pods: AdmittedPod) -> set[int]:
    units = {u for pod in pods for c in pod.containers for each in c.devices.values() for u in each}
    return {i for i, gpu in enumerate(GPUS) if any(u.startswith(gpu.uuid) for u in units)}


def make_node(base: Path) -> InProcessNode:
    node = InProcessNode(base, seed=3)
    node.inventory.found = GpuListing(GPUS)
    return node


@pytest.fixture
def cluster(server: ClusterServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    server.put(POD, "of-nobody", metadata={"uid": "u"}, spec={})
    server.be_found(monkeypatch)
    made: list[NodePods] = []

    def followed(*args: Any) -> NodePods:
        made.append(NodePods(*args))
        return made[-1]

    monkeypatch.setattr(followed_pods, "NodePods", followed)
    monkeypatch.setattr(list_watch, "FIRST_PAUSE_S", 0.02)
    monkeypatch.setattr(list_watch, "LONGEST_PAUSE_S", 0.1)
    with running_node(monkeypatch, make_node, CONFIG) as node:
        wait_until(lambda: made[-1].seen().is_current)
        yield Cluster(node, server, made)


def test_it_follows_the_pods_of_its_own_node(cluster: Cluster) -> None:
    assert cluster.server.asked(POD, watch=False)[0]["fieldSelector"] == f"spec.nodeName={NODE}"
    wait_until(lambda: cluster.server.asked(POD, watch=True))  # once the list has been read
    assert cluster.server.asked(POD, watch=True)[0]["fieldSelector"] == f"spec.nodeName={NODE}"
    assert agent_report(cluster.node.run_dir).pods_problem == ""


def test_eight_small_pods_share_one_gpu_whichever_half_is_asked_first(cluster: Cluster) -> None:
    pods = [cluster.admit(f"p{i}", SMALL) for i in range(8)]

    assert gpus_of(*pods) == {0}
    # Seven GPUs are whole, which a container with all of them shows.
    whole = cluster.admit("whole", {"vgpu-core": 700, "vgpu-memory": 560})
    assert gpus_of(whole) == set(range(1, 8))


def test_pods_that_are_bound_at_once_are_told_apart(cluster: Cluster) -> None:
    shapes = {f"p{i}": {"vgpu-core": 20, "vgpu-memory": m} for i, m in enumerate((8, 70, 30, 50))}
    bound = {
        name: cluster.bind(name, shape, gpus={"c0": (GPUS[i + 3].uuid,)})
        for i, (name, shape) in enumerate(shapes.items())
    }
    order = list(bound)
    random.Random(5).shuffle(order)

    found = {name: gpus_of(cluster.node.kubelet.admit(bound[name])) for name in order}

    assert found == {"p0": {3}, "p1": {4}, "p2": {5}, "p3": {6}}


def test_init_containers_and_their_successors_stay_together(cluster: Cluster) -> None:
    cluster.admit("busy", {"vgpu-core": 60, "vgpu-memory": 50})
    for i in range(4):
        pod = cluster.admit(f"init-{i}", SMALL, {"vgpu-core": 50, "vgpu-memory": 40}, init=1)
        cluster.node.kubelet.run_options(pod, "c0")
        assert len(gpus_of(pod)) == 1


def test_two_containers_and_lone_halves(cluster: Cluster) -> None:
    two = cluster.admit("two", SMALL, {"vgpu-core": 30, "vgpu-memory": 40})
    lone = cluster.admit("lone", {"vgpu-core": 20}, {"vgpu-memory": 8})

    assert gpus_of(two) == gpus_of(lone) == {0}
    for pod in (two, lone):
        for container in ("c0", "c1"):
            cluster.node.kubelet.run_options(pod, container)


def test_a_choice_gives_nobody_more_than_a_place(cluster: Cluster) -> None:
    assert gpus_of(cluster.admit("chosen", SMALL, gpus={"c0": (GPUS[6].uuid,)})) == {6}
    several = tuple(each.uuid for each in GPUS[:4])
    for name, gpus, node in (
        ("elsewhere", (GPUS[3].uuid,), "another-node"),
        ("stranger", ("GPU-ffffffff-0000-0000-0000-000000000000",), NODE),
        ("many", several, NODE),
    ):
        pod = cluster.admit(name, SMALL, gpus={"c0": gpus}, of_node=node)
        assert gpus_of(pod) == {6}, name
        assert cluster.node.limit(pod).memory_limit_bytes == 8 * GIB
    whole = cluster.admit("whole", {"vgpu-core": 200}, gpus={"c0": several[1:3]})
    assert gpus_of(whole) == {1, 2}


def test_without_the_api_server_pods_are_admitted_as_before(cluster: Cluster) -> None:
    cluster.admit("before", SMALL)
    known = cluster.bind("known", SMALL)
    cluster.server.stop()
    wait_until(lambda: "does not answer" in agent_report(cluster.node.run_dir).pods_problem
               or "not reached" in agent_report(cluster.node.run_dir).pods_problem)  # fmt: skip
    assert "vgpu_pods_followed 0.0" in metrics_page(cluster.node.run_dir)

    assert gpus_of(cluster.node.kubelet.admit(known)) == {0}
    unknown = [cluster.node.admit(f"u{i}", SMALL) for i in range(3)]
    assert len(gpus_of(*unknown)) == 3

    cluster.server.start()
    wait_until(lambda: agent_report(cluster.node.run_dir).pods_problem == "")
    assert "vgpu_pods_followed 1.0" in metrics_page(cluster.node.run_dir)


def test_pods_are_told_again_to_an_agent_that_was_restarted(cluster: Cluster) -> None:
    first = cluster.admit("first", SMALL)
    cluster.node.stop_agent()
    cluster.node.start_agent()
    cluster.node.wait_registered([f"nvidia.com/vgpu-{half}" for half in ("core", "memory")])
    wait_until(lambda: ("default", "first") in cluster.pods().seen().names)

    assert gpus_of(first, cluster.admit("second", SMALL)) == {0}


def test_preferring_takes_no_longer_than_it_may(cluster: Cluster) -> None:
    """A pod that nobody tells of costs a short wait once, not each of its halves."""
    cluster.bind("known", SMALL)
    before_s = time.monotonic()
    cluster.node.admit("unknown", SMALL)

    assert time.monotonic() - before_s < 2.0  # a busy machine; the wait itself is 15 ms
