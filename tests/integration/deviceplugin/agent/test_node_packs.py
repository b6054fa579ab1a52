"""The agent knows the pods of its node from the API server, and packs them on few GPUs."""

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

    def bind(self, name: str, limits: Mapping[str, int], gpu: str = "") -> PodManifest:
        """Binds a pod of one container, with a GPU chosen for it, and waits until it is known."""
        made = ContainerManifest("c0", limits={f"nvidia.com/{k}": n for k, n in limits.items()})
        quantities = {key: str(n) for key, n in made.limits.items()}
        chosen = ChosenGpus(NODE, {"c0": (gpu,)} if gpu else {}).encoded()
        self.server.put(
            POD, name,
            metadata={"uid": f"u-{name}", "annotations": {"nvidia.com/vgpu.gpus": chosen}},
            spec={"nodeName": NODE,
                  "containers": [{"name": "c0", "resources": {"limits": quantities}}]},
            status={"phase": "Pending"},
        )  # fmt: skip
        wait_until(lambda: ("default", name) in self.pods().seen().names)
        return PodManifest(name=name, containers=(made,))

    def admit(self, name: str, limits: Mapping[str, int], gpu: str = "") -> AdmittedPod:
        return self.node.kubelet.admit(self.bind(name, limits, gpu))


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
    assert gpus_of(cluster.admit("chosen", SMALL, GPUS[6].uuid)) == {6}
    # Six GPUs are whole, which a container with all of them shows.
    whole = cluster.admit("whole", {"vgpu-core": 600, "vgpu-memory": 480})
    assert gpus_of(whole) == {1, 2, 3, 4, 5, 7}


def test_without_the_api_server_pods_are_admitted_as_before(cluster: Cluster) -> None:
    cluster.admit("before", SMALL)
    known = cluster.bind("known", SMALL)
    cluster.server.stop()
    wait_until(
        lambda: (
            "does not answer" in agent_report(cluster.node.run_dir).pods_problem
            or "not reached" in agent_report(cluster.node.run_dir).pods_problem
        )
    )
    assert "vgpu_pods_followed 0.0" in metrics_page(cluster.node.run_dir)

    assert gpus_of(cluster.node.kubelet.admit(known)) == {0}
    unknown = [cluster.node.admit(f"u{i}", SMALL) for i in range(3)]
    assert len(gpus_of(*unknown)) == 3

    cluster.server.start()
    wait_until(lambda: agent_report(cluster.node.run_dir).pods_problem == "")
    assert "vgpu_pods_followed 1.0" in metrics_page(cluster.node.run_dir)
