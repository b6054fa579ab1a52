"""Pods that a kubelet admits: pairs, answers, defaults, refusals."""

from pathlib import Path

import pytest

from deviceplugin.testing import AdmissionFailed, ContainerManifest, PodManifest
from libvgpu import artifacts, region
from libvgpu.limits import ComputeMode, Family
from support.node.in_process import GIB, MPS_GPU, SPARE_GPU, VGPU_GPU, InProcessNode
from support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("in_world")

EVERYTHING = {"nvidia.com/vgpu-core": 200, "nvidia.com/vgpu-memory": 32}


def test_all_four_resources_are_offered_unit_by_unit(node: InProcessNode) -> None:
    offered = node.kubelet.allocatable()

    assert offered == {
        "nvidia.com/mps-core": 100,
        "nvidia.com/mps-memory": 16,
        "nvidia.com/vgpu-core": 200,
        "nvidia.com/vgpu-memory": 32,
    }


def test_a_vgpu_pair_becomes_one_slice(node: InProcessNode) -> None:
    pod = node.admit("a", {"vgpu-core": 30, "vgpu-memory": 4})

    options = node.kubelet.run_options(pod, "c0")

    assert options.conflicts == ()
    assert set(options.envs) == {"NVIDIA_VISIBLE_DEVICES"}
    mounts = {m.container_path: m for m in options.mounts}
    assert mounts["/run/vgpu/limits"].read_only
    assert not mounts["/run/vgpu/usage"].read_only
    assert not mounts["/run/vgpu/ring"].read_only
    assert Path(mounts["/run/vgpu/ring"].host_path).is_fifo()
    preload = Path(mounts["/etc/ld.so.preload"].host_path).read_text().rstrip("\n")
    assert Path(mounts[preload].host_path).read_bytes() == artifacts.shim_path().read_bytes()
    view = region.read_limits(Path(mounts["/run/vgpu/limits"].host_path).parent).limits
    assert view.family is Family.VGPU
    (device,) = view.devices
    assert device.uuid == options.envs["NVIDIA_VISIBLE_DEVICES"]
    assert device.memory_limit_bytes == 4 * GIB
    assert (device.core_percent, device.compute_mode) == (30, ComputeMode.ELASTIC)


def test_an_mps_pair_gets_the_three_variables_and_the_pipe(node: InProcessNode) -> None:
    pod = node.admit("a", {"mps-core": 50, "mps-memory": 8})

    options = node.kubelet.run_options(pod, "c0")

    assert options.conflicts == ()
    assert options.envs == {
        "NVIDIA_VISIBLE_DEVICES": MPS_GPU.uuid,
        "CUDA_MPS_PIPE_DIRECTORY": "/run/vgpu/mps",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "50",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=8192M",
    }
    pipe = next(m for m in options.mounts if m.container_path == "/run/vgpu/mps")
    assert Path(pipe.host_path).is_dir()
    assert not pipe.read_only
    device = node.limit(pod)
    assert device.compute_mode is ComputeMode.OFF
    assert (device.mps_thread_percentage, device.mps_pinned_bytes) == (50, 8 * GIB)


def test_containers_of_one_pod_and_of_many_never_share_or_split(node: InProcessNode) -> None:
    pods = [
        node.admit(
            f"p{n}", {"vgpu-core": 20, "vgpu-memory": 3}, {"vgpu-memory": 5, "vgpu-core": 30}
        )
        for n in range(3)
    ]

    gpus, directories = [], set()
    for pod in pods:
        for name, memory in (("c0", 3), ("c1", 5)):
            options = node.kubelet.run_options(pod, name)
            gpus.append(options.envs["NVIDIA_VISIBLE_DEVICES"])
            directories.add(
                next(m.host_path for m in options.mounts if m.container_path == "/run/vgpu/usage")
            )
            assert node.limit(pod, name).memory_limit_bytes == memory * GIB
            held = [u for units in pod.container(name).devices.values() for u in units]
            assert {u.partition("::")[0] for u in held} == {gpus[-1]}
    assert len(directories) == len(gpus)
    assert set(gpus) == {VGPU_GPU.uuid, SPARE_GPU.uuid}


def test_what_no_single_gpu_can_hold_is_refused_with_the_numbers(node: InProcessNode) -> None:
    with pytest.raises(AdmissionFailed, match="allowed are 1 to 100"):
        node.admit("r", {"vgpu-core": 101})
    for n in range(2):
        node.admit(f"p{n}", {"vgpu-core": 60, "vgpu-memory": 2})

    with pytest.raises(
        AdmissionFailed, match=r"vgpu-core: 70 (is not free on any single GPU|cannot join).*40"
    ):
        node.admit("q", {"vgpu-core": 70, "vgpu-memory": 2})
    node.admit("s", {"vgpu-core": 40, "vgpu-memory": 14})  # the failed pod keeps no half


def test_core_alone_gets_its_share_of_memory_and_the_rest_is_withdrawn(node: InProcessNode) -> None:
    pod = node.admit("a", {"vgpu-core": 25})

    device = node.limit(pod)

    assert (device.core_percent, device.memory_limit_bytes) == (25, 4 * GIB)
    wait_until(lambda: node.kubelet.allocatable()["nvidia.com/vgpu-memory"] == 28)
    node.kubelet.finish(pod)
    wait_until(lambda: node.kubelet.allocatable()["nvidia.com/vgpu-memory"] == 32)


def test_memory_alone_runs_on_what_others_leave_over(node: InProcessNode) -> None:
    device = node.limit(node.admit("a", {"vgpu-memory": 2}))

    assert device.memory_limit_bytes == 2 * GIB
    assert (device.core_percent, device.weight, device.reserved_percent) == (1, 0, 0)
    assert device.compute_mode is ComputeMode.ELASTIC


def test_memory_alone_is_refused_by_mps_at_the_start(node: InProcessNode) -> None:
    pod = node.admit("a", {"mps-memory": 2})

    with pytest.raises(AdmissionFailed, match="mps-memory: 2 without nvidia"):
        node.limit(pod)


def test_whole_gpus_come_with_all_their_memory(node: InProcessNode) -> None:
    pod = node.admit("a", {"vgpu-core": 200})

    options = node.kubelet.run_options(pod, "c0")

    host = {m.container_path: Path(m.host_path) for m in options.mounts}
    devices = region.read_limits(host["/run/vgpu/limits"].parent).limits.devices
    assert [d.uuid for d in devices] == options.envs["NVIDIA_VISIBLE_DEVICES"].split(",")
    assert {d.uuid for d in devices} == {VGPU_GPU.uuid, SPARE_GPU.uuid}
    assert [(d.core_percent, d.memory_limit_bytes) for d in devices] == [(100, 16 * GIB)] * 2
    assert host["/run/vgpu/ring.1"].is_fifo()


def test_whole_gpus_may_be_asked_for_by_both_halves_in_either_order(node: InProcessNode) -> None:
    orders = set()
    for round_number in range(12):
        pod = node.admit(f"p{round_number}", {"vgpu-core": 200, "vgpu-memory": 32})
        orders.add(tuple(pod.container("c0").devices))

        options = node.kubelet.run_options(pod, "c0")

        assert len(options.envs["NVIDIA_VISIBLE_DEVICES"].split(",")) == 2
        node.kubelet.finish(pod)
        wait_until(lambda: EVERYTHING.items() <= node.kubelet.allocatable().items())
    assert len(orders) == 2


def test_an_init_container_of_equal_cores_starts_and_so_does_what_comes_after_it(
    node: InProcessNode,
) -> None:
    core, pair = (
        {"nvidia.com/vgpu-core": 20},
        {"nvidia.com/vgpu-core": 20, "nvidia.com/vgpu-memory": 8},
    )
    cores_first = 0
    for round_number in range(12):
        pod = node.kubelet.admit(
            PodManifest(
                f"p{round_number}",
                (ContainerManifest("main", limits=pair),),
                init_containers=(ContainerManifest("init", limits=core),),
            )
        )
        if next(iter(pod.container("main").devices)) == "nvidia.com/vgpu-core":
            cores_first += 1
            assert node.limit(pod, "init").core_percent == 20
            main = node.limit(pod, "main")
            assert (main.core_percent, main.memory_limit_bytes) == (20, 8 * GIB)
        node.kubelet.finish(pod)
        wait_until(lambda: EVERYTHING.items() <= node.kubelet.allocatable().items())
    assert 0 < cores_first < 12


def test_halves_of_two_containers_are_refused_at_the_start(node: InProcessNode) -> None:
    pod = node.admit("a", {"vgpu-core": 10}, {"vgpu-memory": 2})

    for name in ("c0", "c1"):
        with pytest.raises(AdmissionFailed, match="went to different containers"):
            node.kubelet.run_options(pod, name)
