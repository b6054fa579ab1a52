"""Pods that a kubelet admits: pairs, answers, defaults, refusals."""

import math
from pathlib import Path

import pytest

from deviceplugin.core import container_start
from deviceplugin.testing import AdmissionFailed
from libvgpu import artifacts, region
from libvgpu.limits import ComputeMode, Family
from support.node.in_process import CONFIG, GIB, MPS_GPU, SPARE_GPU, VGPU_GPU, InProcessNode
from support.waiting import wait_until
from vgpuctl.agent_client import agent_report

pytestmark = pytest.mark.usefixtures("in_world")

CORE = {"vgpu-core": 50}
ALL_MEMORY = {"vgpu-memory": 16}


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


def test_core_alone_starts_once_its_memory_is_known_to_be_free(
    node: InProcessNode,
) -> None:
    pods = [node.admit(f"old-{n}", ALL_MEMORY) for n in range(2)]
    for pod in pods:
        node.kubelet.run_options(pod, "c0")
        node.kubelet.finish(pod)

    # Only core is asked for, so nobody has said of any memory that it is free.
    pod = node.admit("lone", CORE)

    assert node.limit(pod).memory_limit_bytes == 8 * GIB


def test_core_alone_does_not_wait_for_those_that_run(
    node: InProcessNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(container_start, "MEMORY_WAIT_S", math.inf)
    for n in range(2):
        node.admit(f"old-{n}", ALL_MEMORY)
    pod = node.admit("lone", CORE)

    with pytest.raises(AdmissionFailed, match="8 units of 1 GiB, but 0 are free"):
        node.kubelet.run_options(pod, "c0")


def test_a_lone_half_does_not_start_where_the_config_forbids_it(node: InProcessNode) -> None:
    started = node.admit("started", CORE)
    node.limit(started)
    node.config.write_text(CONFIG.replace("elastic", "elastic, loneHalves: forbid"))
    before = agent_report(node.run_dir).config.digest
    wait_until(lambda: agent_report(node.run_dir).config.digest != before)

    lone = node.admit("lone", {"vgpu-core": 20})

    with pytest.raises(AdmissionFailed, match=r"vgpu-core: 20 without .* is forbidden"):
        node.kubelet.run_options(lone, "c0")
    node.limit(started)  # whoever has started goes on
