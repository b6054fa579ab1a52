"""The CDI spec that the real agent writes on a simulated machine, put to use."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from libvgpu.artifacts import SIM_LIBRARY_DIR
from support.node.simulated import SLICES, SimulatedNode
from support.waiting import wait_until
from vgpuctl.agent_client import agent_report
from vgpuctl.doctor.finding import FAIL, OK
from vgpuctl.doctor.injection_check import injection

KIND = "k8s.device-plugin.nvidia.com/gpu"
CONFIG = """\
version: v1
flags: {{plugin: {{deviceListStrategy: cdi-cri, cdiSpecDir: '{directory}'}}}}
sharing:
  fractional:
    - {{family: vgpu, devices: [0], memoryUnit: 1Gi}}
"""
WHOLE = "nvidia.com/gpu"
# Asks the driver that the loader finds which GPUs there are.
PROGRAM = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
assert cuda.cuInit(0) == 0
count = ctypes.c_int()
assert cuda.cuDeviceGetCount(ctypes.byref(count)) == 0
uuid = (ctypes.c_ubyte * 16)()
assert cuda.cuDeviceGetUuid_v2(uuid, 0) == 0
print(count.value, bytes(uuid).hex())
"""


class CdiNode(SimulatedNode):
    """One whose agent writes CDI specs."""

    def __init__(self, base: Path) -> None:
        self.spec = base / "cdi" / "k8s.device-plugin.nvidia.com-gpu.json"
        config = CONFIG.format(directory=base / "cdi")
        super().__init__(base, "t4*2", config, [*SLICES, WHOLE])


@pytest.fixture
def node(short_path: Path) -> Iterator[CdiNode]:
    with CdiNode(short_path) as node:
        yield node


def edits_of(spec: dict[str, Any], name: str) -> list[dict[str, Any]]:
    return [
        spec["containerEdits"],
        *(d["containerEdits"] for d in spec["devices"] if d["name"] == name),
    ]


def run_with(edits: list[dict[str, Any]], folder: Path) -> str:
    """Runs a program as a runtime would with these edits, paths translated."""
    env = dict(entry.split("=", 1) for part in edits for entry in part.get("env", ()))
    mounts = {m["containerPath"]: m["hostPath"] for p in edits for m in p.get("mounts", ())}
    folder.mkdir()
    for target, source in mounts.items():
        if target.startswith("/usr/lib64/"):
            (folder / os.path.basename(target)).symlink_to(source)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=env
        | {
            "VGPU_SIM_MACHINE": mounts[env["VGPU_SIM_MACHINE"]],
            "LD_LIBRARY_PATH": str(folder),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_container_with_the_agents_spec_sees_its_gpu_alone(node: CdiNode, tmp_path: Path) -> None:
    pod = node.admit("a", vgpu_core=1, vgpu_memory=1)
    (name,) = node.kubelet.run_options(pod, "c").cdi_devices
    kind, _, uuid = name.partition("=")
    spec = json.loads(node.spec.read_text())

    assert (kind, spec["kind"]) == (KIND, KIND)
    told = run_with(edits_of(spec, uuid), tmp_path / "lib")

    assert told == f"1 {uuid.removeprefix('GPU-').replace('-', '')}"
    sources = {m["hostPath"] for m in spec["containerEdits"]["mounts"]}
    assert {f"{SIM_LIBRARY_DIR}/libcuda.so.1", f"{SIM_LIBRARY_DIR}/libnvidia-ml.so.1"} <= sources


def test_all_are_all_gpus_of_the_machine(node: CdiNode, tmp_path: Path) -> None:
    spec = json.loads(node.spec.read_text())

    assert run_with(edits_of(spec, "all"), tmp_path / "lib").startswith("2 ")


def test_the_agent_puts_a_removed_spec_back_by_itself_and_doctor_tells(node: CdiNode) -> None:
    node.spec.unlink()

    wait_until(node.spec.exists, "the agent's loop writes it again")

    (finding,) = injection(agent_report(node.run_dir).injection)
    assert finding.level == OK
    assert str(node.spec) in finding.message


def test_a_whole_gpu_does_not_start_without_its_spec(node: CdiNode) -> None:
    pod = node.admit("a", gpu=1)
    assert node.kubelet.run_options(pod, "c").cdi_devices == (
        f"{KIND}={node.machine.devices[1].uuid}",
    )
    node.spec.unlink()
    node.spec.mkdir()  # so that it cannot be put back

    with pytest.raises(Exception, match=r"the CDI spec \S+ cannot be written"):
        node.kubelet.run_options(pod, "c")
    with pytest.raises(Exception, match=r"the CDI spec \S+ cannot be written"):
        node.kubelet.run_options(node.admit("b", vgpu_core=1, vgpu_memory=1), "c")
    (finding,) = injection(agent_report(node.run_dir).injection)
    assert finding.level == FAIL
    assert "cannot be written" in finding.message
