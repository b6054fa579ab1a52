"""The forms of the answer through the real agent: what a runtime is told about a pair."""

import logging
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from deviceplugin.model.device_forms import ListStrategy
from deviceplugin.model.gpus import GpuListing
from deviceplugin.model.units import gpu_of
from support.node.in_process import CONFIG, VGPU_GPU, GivenGpus, InProcessNode, running_node
from support.waiting import wait_until

LIST = "/var/run/nvidia-container-devices"
MPS_VARIABLES = {
    "CUDA_MPS_PIPE_DIRECTORY",
    "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
    "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
}
FIRST_MINOR = 4
KIND = "k8s.device-plugin.nvidia.com/gpu"
LISTS = tuple(each for each in ListStrategy if each is not ListStrategy.AUTO)
#: The unit test of the same name has the others; each here is a restart of the agent.
COMBINATIONS: list[tuple[str, ...]] = [
    *((strategy,) for strategy in LISTS),
    ("envvar", "cdi-cri"),
    LISTS,
]


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Iterator[InProcessNode]:
    listed = GivenGpus.listing

    def numbered(self: GivenGpus) -> GpuListing:
        found = listed(self)
        gpus = tuple(replace(gpu, minor=FIRST_MINOR + gpu.index) for gpu in found.gpus)
        return replace(found, gpus=gpus)

    monkeypatch.setattr(GivenGpus, "listing", numbered)
    with running_node(monkeypatch, in_world=True) as node:
        yield node


@pytest.fixture
def cdi(tmp_path: Path) -> str:
    """Flags of a node with a driver in ``driver`` and CDI specs in ``cdi``."""
    libraries = tmp_path / "driver/usr/lib64"
    libraries.mkdir(parents=True)
    (libraries / "libcuda.so.1").write_bytes(b"x")
    root = tmp_path / "driver"
    return f"cdiSpecDir: '{tmp_path}/cdi', containerDriverRoot: '{root}'"


def restart_with(node: InProcessNode, flags: str) -> None:
    node.stop_agent()
    node.config.write_text(f"{CONFIG}flags: {flags}\n")
    node.start_agent()
    node.wait_registered()


def test_every_form_reaches_the_runtime_of_a_pair(
    node: InProcessNode, cdi: str, tmp_path: Path
) -> None:
    root = tmp_path / "driver"
    for number, lists in enumerate(COMBINATIONS):
        restart_with(
            node,
            f"{{nvidiaDriverRoot: '{root}', "
            f"plugin: {{deviceListStrategy: [{', '.join(lists)}], {cdi}}}}}",
        )
        for family in ("vgpu", "mps"):
            pod = node.admit(f"{family}{number}", {f"{family}-core": 5, f"{family}-memory": 1})

            told = node.kubelet.run_options(pod, "c0")

            assert told.conflicts == ()
            (uuid,) = {gpu_of(u) for us in pod.container("c0").devices.values() for u in us}
            visible = told.envs.get("NVIDIA_VISIBLE_DEVICES")
            marks = [m for m in told.mounts if m.container_path.startswith(LIST)]
            if "volume-mounts" in lists:
                assert visible == LIST
                assert [(m.container_path, m.host_path) for m in marks] == [
                    (f"{LIST}/{uuid}", "/dev/null")
                ]
            else:
                assert visible == (uuid if "envvar" in lists else None)
                assert marks == []
            assert list(told.annotations.values()) == (
                [f"{KIND}={uuid}"] if "cdi-annotations" in lists else []
            )
            assert all(re.fullmatch(r"cdi\.k8s\.io/vgpu_[0-9a-f]+", k) for k in told.annotations)
            assert told.cdi_devices == ((f"{KIND}={uuid}",) if "cdi-cri" in lists else ())
            expected = MPS_VARIABLES if family == "mps" else set()
            assert set(told.envs) - {"NVIDIA_VISIBLE_DEVICES"} == expected
            assert {m.container_path for m in told.mounts} > {
                "/run/vgpu/limits",
                "/run/vgpu/usage",
                "/run/vgpu/ring",
                "/etc/ld.so.preload",
            }
            assert told.devices == ()


def test_device_nodes_come_from_the_drivers_root(
    node: InProcessNode, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "deviceplugin")
    root = tmp_path / "driver"
    (root / "dev").mkdir(parents=True)
    for name in ("nvidia4", "nvidia5", "nvidiactl", "nvidia-uvm"):
        (root / "dev" / name).touch()
    restart_with(
        node,
        f"{{nvidiaDevRoot: '{root}', plugin: {{passDeviceSpecs: true, deviceIDStrategy: index}}}}",
    )

    told = node.kubelet.run_options(node.admit("a", {"vgpu-core": 10, "vgpu-memory": 2}), "c0")

    assert told.envs == {"NVIDIA_VISIBLE_DEVICES": str(VGPU_GPU.index)}
    assert {(d.container_path, d.host_path, d.permissions) for d in told.devices} == {
        (f"/dev/{name}", f"{root}/dev/{name}", "rw")
        for name in (f"nvidia{FIRST_MINOR + VGPU_GPU.index}", "nvidiactl", "nvidia-uvm")
    }
    (said,) = [r for r in caplog.records if "passDeviceSpecs" in r.getMessage()]
    assert said.__dict__["fields"] == {"nodes": f"{root}/dev/nvidia6"}, "the third GPU's own"


def test_a_changed_form_waits_for_a_restart_and_is_said_to(
    node: InProcessNode, cdi: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "deviceplugin")
    waiting = "changed forms of the answer (flags) take effect when the agent restarts"
    flags = (
        f"{{nvidiaDriverRoot: '{tmp_path}/driver', plugin: {{deviceListStrategy: cdi-cri, {cdi}}}}}"
    )
    node.config.write_text(f"{CONFIG}flags: {flags}\n")
    wait_until(lambda: waiting in caplog.messages)

    before = node.kubelet.run_options(node.admit("a", {"vgpu-core": 10, "vgpu-memory": 2}), "c0")
    node.stop_agent()
    node.start_agent()
    node.wait_registered()
    after = node.kubelet.run_options(node.admit("b", {"vgpu-core": 10, "vgpu-memory": 2}), "c0")

    assert (set(before.envs), before.cdi_devices) == ({"NVIDIA_VISIBLE_DEVICES"}, ())
    assert after.envs == {}
    assert len(after.cdi_devices) == 1
    assert "GPU sharing changed" not in caplog.messages
