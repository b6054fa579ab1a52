"""GPUs and MIG devices that are given whole or as replicas, through a kubelet's eyes."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from deviceplugin.core import podresources_sync
from deviceplugin.model.gpus import Gpu, GpuListing, MigPart
from deviceplugin.testing import AdmissionFailed, AdmittedPod, StandInKubelet
from support.node.in_process import GIB, InProcessNode, running_node
from support.waiting import wait_until

WHOLE = "version: v1\n"


def gpus(count: int) -> tuple[Gpu, ...]:
    return tuple(
        Gpu(i, f"GPU-{i:08x}-0000-0000-0000-000000000000", "Tesla T4", 16 * GIB, minor=i)
        for i in range(count)
    )


@contextmanager
def node_with(
    monkeypatch: pytest.MonkeyPatch, there: tuple[Gpu, ...], config: str, *resources: str
) -> Iterator[InProcessNode]:
    class Node(InProcessNode):
        def __init__(self, base: Path) -> None:
            super().__init__(base)
            self.kubelet = StandInKubelet(self.kubelet_dir, 1, makes_pod_directories=True)
            self.inventory.found = GpuListing(there)

        def wait_registered(self, _: list[str] | None = None) -> None:
            super().wait_registered(list(resources))

    with running_node(monkeypatch, Node, config, in_world=True) as node:
        yield node


def devices(node: InProcessNode, pod: AdmittedPod) -> list[str]:
    return node.kubelet.run_options(pod, "c0").envs["NVIDIA_VISIBLE_DEVICES"].split(",")


def test_packed_replicas_fill_one_gpu_first(monkeypatch: pytest.MonkeyPatch) -> None:
    config = (
        "version: v1\nflags: {plugin: {sharedDevicesAllocationPolicy: packed}}\n"
        "sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 5}]}}\n"
    )
    with node_with(monkeypatch, gpus(2), config, "nvidia.com/gpu") as node:
        placed = Counter(devices(node, node.admit(f"p{n}", {"gpu": 1}))[0] for n in range(6))

        assert sorted(placed.values()) == [1, 5]


def test_mig_devices_are_shared_further_in_fractions(monkeypatch: pytest.MonkeyPatch) -> None:
    cut, other = gpus(2)
    part, whole = (
        Gpu(0, f"MIG-{n}", profile, 5 * GIB, minor=0, mig=MigPart(cut.uuid, n, profile, n + 1, 0))
        for n, profile in enumerate(("3g.20gb", "1g.5gb+me"))
    )
    there = (replace(cut, is_mig_enabled=True, mig_devices=(part, whole)), other)
    config = (
        "version: v1\nflags: {migStrategy: mixed}\n"
        "sharing: {fractional: [{family: vgpu, match: {mig: 3g.20gb}}]}\n"
    )
    counts = {"gpu": 1, "mig-1g.5gb.me": 1, "vgpu-core": 100, "vgpu-memory": 5}
    offered = {f"nvidia.com/{name}": count for name, count in counts.items()}
    with node_with(monkeypatch, there, config, *offered) as node:
        assert node.kubelet.allocatable() == offered
        pod = node.admit("job", {"vgpu-core": 30, "vgpu-memory": 2})
        limit = node.limit(pod)
        assert devices(node, pod) == [limit.uuid] == [part.uuid]
        assert limit.memory_limit_bytes == 2 * GIB


def test_a_gpu_that_a_container_has_whole_is_shared_when_that_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fractions = "version: v1\nsharing: {fractional: [{family: vgpu}]}\n"
    vgpu = "nvidia.com/vgpu-core"
    with node_with(monkeypatch, gpus(2), WHOLE, "nvidia.com/gpu") as node:
        pod = node.admit("job", {"gpu": 1})
        held = devices(node, pod)[0]

        node.config.write_text(fractions)
        wait_until(lambda: node.kubelet.allocatable().get(vgpu) == 100, "the free GPU is shared")
        wait_until(
            lambda: node.kubelet.allocatable().get("nvidia.com/gpu") == 1, "the held one is listed"
        )
        other = node.admit("slice", {"vgpu-core": 30})
        assert devices(node, other) != [held]

        node.stop_agent()  # what is held comes back from the kubelet's record
        node.start_agent()
        node.kubelet.wait_for_resources([vgpu], 20)
        assert node.kubelet.allocatable().get(vgpu) == 100

        node.kubelet.finish(pod)
        wait_until(lambda: node.kubelet.allocatable().get(vgpu) == 200, "both are shared")


def test_a_container_has_slices_or_whole_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    config = "version: v1\nsharing: {fractional: [{family: vgpu, devices: [0]}]}\n"
    resources = ("nvidia.com/gpu", "nvidia.com/vgpu-core")
    with node_with(monkeypatch, gpus(2), config, *resources) as node:
        pod = node.admit("both", {"gpu": 1, "vgpu-core": 30})

        with pytest.raises(AdmissionFailed, match="either slices or whole devices"):
            node.kubelet.run_options(pod, "c0")


MPS = """\
version: v1
sharing:
  mps:
    renameByDefault: true
    resources:
    - {name: nvidia.com/gpu, replicas: 4}
"""


def test_replicas_under_mps_are_equal_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    resource = "nvidia.com/gpu.shared"
    with node_with(monkeypatch, gpus(2), MPS, resource) as node:
        assert node.kubelet.allocatable() == {resource: 8}
        for gpu in gpus(2):
            (node.run_dir / "mps" / gpu.uuid / "pipe").mkdir(parents=True)

        pods = [node.admit(f"p{n}", {"gpu.shared": 1}) for n in range(4)]

        assert Counter(devices(node, pod)[0] for pod in pods) == {g.uuid: 2 for g in gpus(2)}
        for pod in pods:
            envs = node.kubelet.run_options(pod, "c0").envs
            assert envs["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "25"
            assert envs["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == f"0={4 * 1024}M"
            assert envs["CUDA_MPS_PIPE_DIRECTORY"] == "/run/vgpu/mps"
            limit = node.limit(pod)
            assert (limit.memory_limit_bytes, limit.core_percent) == (4 * GIB, 25)
        with pytest.raises(AdmissionFailed, match="failRequestsGreaterThanOne"):
            node.admit("greedy", {"gpu.shared": 2})

        node.stop_agent()
        node.start_agent()
        node.kubelet.wait_for_resources([resource], 20)
        assert node.kubelet.run_options(pods[0], "c0").envs["CUDA_MPS_PIPE_DIRECTORY"]

        files = node.run_dir / "allocations"
        assert len(list(files.iterdir())) == 4
        node.stop_agent()  # without its checkpoint the kubelet's record is enough
        (node.state_dir / "checkpoint.json").unlink()
        node.start_agent()
        node.kubelet.wait_for_resources([resource], 20)
        assert node.kubelet.run_options(pods[1], "c0").envs["CUDA_MPS_PIPE_DIRECTORY"]
        assert node.limit(pods[1]).memory_limit_bytes == 4 * GIB
        for pod in pods:
            node.kubelet.finish(pod)
        wait_until(lambda: not list(files.iterdir()), "the slices are gone")


def test_without_podresources_the_kubelets_checkpoint_lets_a_whole_gpu_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(podresources_sync, "PATIENCE_S", 0.5)
    with node_with(monkeypatch, gpus(2), WHOLE, "nvidia.com/gpu") as node:
        node.kubelet.podresources_socket.unlink()
        pod = node.admit("job", {"gpu": 1})
        kept = node.kubelet.checkpoint.read_bytes()
        node.kubelet.checkpoint.unlink()

        with pytest.raises(AdmissionFailed, match="podresources of the kubelet gave no answer"):
            devices(node, pod)

        node.kubelet.checkpoint.write_bytes(kept)
        assert len(devices(node, pod)) == 1
