"""The agent as its users start it: two processes on the NVML and MPS of a simulated machine."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from deviceplugin.mps import control_pipe
from deviceplugin.testing import (
    AdmissionFailed,
)
from support import ROOT, warm
from support.node.simulated import SimulatedNode
from support.waiting import PATIENCE_S, wait_until

EXAMPLE = ROOT / "deploy/examples/config.yaml"
GIB = 1 << 30
RESOURCES = [f"nvidia.com/{f}-{h}" for f in ("mps", "vgpu") for h in ("core", "memory")]


@pytest.fixture
def node(short_path: Path) -> Iterator[SimulatedNode]:
    """One without an agent yet."""
    text = EXAMPLE.read_text()
    with SimulatedNode(short_path, "a100-80g*2", text, RESOURCES, starts=False) as node:
        yield node


def test_a_killed_agent_comes_back_with_every_slice(node: SimulatedNode) -> None:
    node.start_agent()
    pod = node.admit("a", vgpu_core=60, vgpu_memory=50)
    before = node.limit(pod)
    assert before.uuid == node.machine.devices[1].uuid
    assert (before.memory_limit_bytes, before.core_percent) == (50 * GIB, 60)

    node.stop_agent(signal.SIGKILL)
    node.start_agent()

    assert node.limit(pod) == before
    with pytest.raises(AdmissionFailed):
        node.admit("b", vgpu_core=60, vgpu_memory=10)
    node.limit(node.admit("c", vgpu_core=40, vgpu_memory=30))


def test_an_agent_told_to_end_leaves_no_socket(node: SimulatedNode) -> None:
    node.start_agent()

    assert node.stop_agent() == 0
    assert not list(node.kubelet.plugin_directory.glob("nvidia*"))


def test_an_mps_pod_starts_once_the_daemon_answers(
    node: SimulatedNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = node.base / "mps.log"
    words = [f"--config={node.config}", f"--run-dir={node.run_dir}"]
    environment = node.machine.environment(os.environ)
    with open(log, "ab") as output:
        runner = warm.start(["-m", "deviceplugin.mps", *words], environment, output)
    wait_until(lambda: "MPS daemon ready" in log.read_text() or runner.poll() is not None)
    assert runner.poll() is None, log.read_text()
    node.start_agent()

    device = node.limit(node.admit("a", mps_core=50, mps_memory=8))

    gpu = node.machine.devices[0]
    assert device.uuid == gpu.uuid
    assert (device.mps_thread_percentage, device.mps_pinned_bytes) == (50, 8 * GIB)
    assert node.stop_agent() == 0
    monkeypatch.setattr(os, "environ", environment)
    assert control_pipe.is_ready(node.run_dir, gpu.uuid, PATIENCE_S), (
        "the daemon ended with the agent"
    )
    runner.send_signal(signal.SIGTERM)
    assert runner.wait(PATIENCE_S) == 0
    assert not control_pipe.is_ready(node.run_dir, gpu.uuid)
