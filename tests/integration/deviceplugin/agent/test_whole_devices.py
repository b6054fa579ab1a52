"""GPUs and MIG devices that are given whole or as replicas, through a kubelet's eyes."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from deviceplugin.core import podresources_sync
from deviceplugin.model.gpus import Gpu, GpuListing, MigPart
from deviceplugin.testing import AdmissionFailed, AdmittedPod, StandInKubelet
from support.node.in_process import GIB, InProcessNode, running_node
from support.waiting import wait_until

WHOLE = "version: v1\n"
REPLICAS = """\
version: v1
sharing:
  timeSlicing:
    renameByDefault: {rename}
    failRequestsGreaterThanOne: {fail}
    resources:
    - name: nvidia.com/gpu
      replicas: 5
"""


def gpus(count: int, product: str = "Tesla T4") -> tuple[Gpu, ...]:
    return tuple(
        Gpu(i, f"GPU-{i:08x}-0000-0000-0000-000000000000", product, 16 * GIB, minor=i)
        for i in range(count)
    )


def cut(gpu: Gpu, *profiles: str) -> Gpu:
    parts = tuple(
        Gpu(
            gpu.index,
            f"MIG-{gpu.index:08x}-{n:04x}-0000-0000-000000000000",
            f"{gpu.name} MIG {profile}",
            5 * GIB,
            minor=gpu.minor,
            mig=MigPart(gpu.uuid, n, profile, n + 1, 0),
        )
        for n, profile in enumerate(profiles)
    )
    return Gpu(
        gpu.index, gpu.uuid, gpu.name, gpu.memory_bytes, minor=gpu.minor, is_mig_enabled=True,
        mig_devices=parts,
    )  # fmt: skip


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


def test_gpus_in_no_family_are_whole_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    with node_with(monkeypatch, gpus(8), WHOLE, "nvidia.com/gpu") as node:
        assert node.kubelet.allocatable() == {"nvidia.com/gpu": 8}

        pod = node.admit("job", {"gpu": 2})

        assert len(set(devices(node, pod))) == 2
        assert set(devices(node, pod)) < {gpu.uuid for gpu in gpus(8)}
        assert not node.kubelet.run_options(pod, "c0").mounts


@pytest.mark.parametrize(
    ("rename", "resource"), [("false", "nvidia.com/gpu"), ("true", "nvidia.com/gpu.shared")]
)
def test_five_replicas_of_eight_gpus_are_forty(
    monkeypatch: pytest.MonkeyPatch, rename: str, resource: str
) -> None:
    config = REPLICAS.format(rename=rename, fail="true")
    with node_with(monkeypatch, gpus(8), config, resource) as node:
        assert node.kubelet.allocatable() == {resource: 40}

        name = resource.removeprefix("nvidia.com/")
        placed = Counter(devices(node, node.admit(f"p{n}", {name: 1}))[0] for n in range(16))

        assert placed == {gpu.uuid: 2 for gpu in gpus(8)}  # over all GPUs first
        with pytest.raises(AdmissionFailed, match="failRequestsGreaterThanOne"):
            node.admit("greedy", {name: 2})


def test_more_than_one_replica_is_given_where_that_is_allowed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = REPLICAS.format(rename="false", fail="false")
    with node_with(monkeypatch, gpus(2), config, "nvidia.com/gpu") as node:
        pod = node.admit("two", {"gpu": 2})

        assert sorted(devices(node, pod)) == [gpu.uuid for gpu in gpus(2)]


def test_packed_replicas_fill_one_gpu_first(monkeypatch: pytest.MonkeyPatch) -> None:
    config = REPLICAS.format(rename="false", fail="false") + (
        "flags: {plugin: {sharedDevicesAllocationPolicy: packed}}\n"
    )
    with node_with(monkeypatch, gpus(2), config, "nvidia.com/gpu") as node:
        placed = Counter(devices(node, node.admit(f"p{n}", {"gpu": 1}))[0] for n in range(6))

        assert sorted(placed.values()) == [1, 5]


A100 = gpus(2, "NVIDIA A100-SXM4-40GB")


def test_a_gpu_in_mig_mode_is_never_given_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    there = (cut(A100[0], *["1g.5gb"] * 7), A100[1])
    with node_with(monkeypatch, there, WHOLE, "nvidia.com/gpu") as node:
        assert node.kubelet.allocatable() == {"nvidia.com/gpu": 1}
        assert devices(node, node.admit("job", {"gpu": 1})) == [A100[1].uuid]


def test_strategy_single_gives_mig_devices_as_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    there = tuple(cut(gpu, *["1g.5gb"] * 7) for gpu in A100)
    config = WHOLE + "flags: {migStrategy: single}\n"
    with node_with(monkeypatch, there, config, "nvidia.com/gpu") as node:
        assert node.kubelet.allocatable() == {"nvidia.com/gpu": 14}
        (device,) = devices(node, node.admit("job", {"gpu": 1}))
        assert device in {part.uuid for gpu in there for part in gpu.mig_devices}


@pytest.mark.parametrize(
    ("layout", "expected"),
    [
        (["1g.5gb"] * 7, {"mig-1g.5gb": 7}),
        (["2g.10gb"] * 3, {"mig-2g.10gb": 3}),
        (
            ["3g.20gb", "2g.10gb", "1g.5gb", "1g.5gb+me"],
            {"mig-3g.20gb": 1, "mig-2g.10gb": 1, "mig-1g.5gb": 1, "mig-1g.5gb.me": 1},
        ),
    ],
)
def test_strategy_mixed_names_mig_devices_by_their_profile(
    monkeypatch: pytest.MonkeyPatch, layout: list[str], expected: dict[str, int]
) -> None:
    there = (cut(A100[0], *layout), A100[1])
    config = WHOLE + "flags: {migStrategy: mixed}\n"
    resources = {f"nvidia.com/{name}": count for name, count in expected.items()}
    with node_with(monkeypatch, there, config, "nvidia.com/gpu", *resources) as node:
        assert node.kubelet.allocatable() == {"nvidia.com/gpu": 1, **resources}
        first = next(iter(expected))
        (device,) = devices(node, node.admit("job", {first: 1}))
        assert device == there[0].mig_devices[0].uuid


def test_mig_devices_are_shared_further_in_fractions(monkeypatch: pytest.MonkeyPatch) -> None:
    there = (cut(A100[0], "3g.20gb", "2g.10gb"), A100[1])
    config = (
        "version: v1\nflags: {migStrategy: mixed}\n"
        "sharing: {fractional: [{family: vgpu, match: {mig: 3g.20gb}}]}\n"
    )
    fractions = ("nvidia.com/vgpu-core", "nvidia.com/vgpu-memory")
    wanted = ("nvidia.com/gpu", "nvidia.com/mig-2g.10gb", *fractions)
    with node_with(monkeypatch, there, config, *wanted) as node:
        assert node.kubelet.allocatable() == {
            "nvidia.com/gpu": 1,
            "nvidia.com/mig-2g.10gb": 1,
            "nvidia.com/vgpu-core": 100,
            "nvidia.com/vgpu-memory": 5,
        }
        pod = node.admit("job", {"vgpu-core": 30, "vgpu-memory": 2})
        assert devices(node, pod) == [there[0].mig_devices[0].uuid]
        limit = node.limit(pod)
        assert (limit.uuid, limit.memory_limit_bytes) == (there[0].mig_devices[0].uuid, 2 * GIB)


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


def test_a_gpu_with_slices_is_given_whole_when_they_have_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fractions = "version: v1\nsharing: {fractional: [{family: vgpu}]}\n"
    with node_with(monkeypatch, gpus(2), fractions, "nvidia.com/vgpu-core") as node:
        pod = node.admit("slice", {"vgpu-core": 30})

        node.config.write_text(WHOLE)
        wait_until(
            lambda: node.kubelet.allocatable().get("nvidia.com/gpu") == 1, "the free one is whole"
        )
        assert devices(node, node.admit("job", {"gpu": 1})) != devices(node, pod)

        node.kubelet.finish(pod)
        wait_until(lambda: node.kubelet.allocatable().get("nvidia.com/gpu") == 2, "both are whole")


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


def test_a_gpu_with_replicas_under_mps_is_shared_otherwise_when_they_have_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fractions = "version: v1\nsharing: {fractional: [{family: vgpu}]}\n"
    resource, vgpu = "nvidia.com/gpu.shared", "nvidia.com/vgpu-core"
    with node_with(monkeypatch, gpus(2), MPS, resource) as node:
        pod = node.admit("p", {"gpu.shared": 1})

        node.config.write_text(fractions)
        wait_until(lambda: node.kubelet.allocatable().get(vgpu) == 100, "the free GPU is shared")
        # What is held stays listed.
        wait_until(lambda: node.kubelet.allocatable()[resource] == 1, "the rest is withdrawn")

        node.kubelet.finish(pod)
        wait_until(lambda: node.kubelet.allocatable().get(vgpu) == 200, "both are shared")


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


def test_a_part_of_the_gpus_may_be_divided_under_mps(monkeypatch: pytest.MonkeyPatch) -> None:
    config = "version: v1\nsharing: {mps: {resources: [{name: gpu, replicas: 4, devices: [0]}]}}\n"
    with node_with(monkeypatch, gpus(2), config, "nvidia.com/gpu") as node:
        assert node.kubelet.allocatable() == {"nvidia.com/gpu": 5}
        (node.run_dir / "mps" / gpus(1)[0].uuid / "pipe").mkdir(parents=True)

        pods = [node.admit(f"p{n}", {"gpu": 1}) for n in range(5)]

        told = [node.kubelet.run_options(pod, "c0").envs for pod in pods]
        clients = [envs for envs in told if "CUDA_MPS_PIPE_DIRECTORY" in envs]
        whole = [envs for envs in told if "CUDA_MPS_PIPE_DIRECTORY" not in envs]
        assert {envs["NVIDIA_VISIBLE_DEVICES"] for envs in clients} == {gpus(2)[0].uuid}
        assert [envs["NVIDIA_VISIBLE_DEVICES"] for envs in whole] == [gpus(2)[1].uuid]
