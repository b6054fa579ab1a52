"""The agent as its users start it: two processes on the NVML and MPS of a simulated machine."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from deviceplugin.mps import control_pipe
from deviceplugin.testing import (
    AdmissionFailed,
    AdmittedPod,
    ContainerManifest,
    PodManifest,
    StandInKubelet,
)
from libvgpu import region
from libvgpu.limits import DeviceLimit
from libvgpu.sim.machine import Machine
from libvgpu.sim.profiles import PROFILES
from support import ROOT
from support.node.in_process import wait_until_lost
from support.waiting import PATIENCE_S, wait_until

EXAMPLE = ROOT / "deploy/examples/config.yaml"
GIB = 1 << 30
RESOURCES = [f"nvidia.com/{f}-{h}" for f in ("mps", "vgpu") for h in ("core", "memory")]


class SimulatedNode:
    """A simulated machine with a kubelet stand-in, and the project's own processes on it."""

    def __init__(self, base: Path) -> None:
        self.base, self.run_dir = base, base / "run"
        self.machine = Machine.create([PROFILES["a100-80g"]] * 2, base / "machine")
        self.environment = self.machine.environment(os.environ)
        self.kubelet = StandInKubelet(base / "kubelet", seed=7)
        self.kubelet.start()
        self._started: list[subprocess.Popen[str]] = []

    def start_agent(self) -> subprocess.Popen[str]:
        agent = self._start(
            "deviceplugin",
            f"--kubelet-dir={self.base / 'kubelet'}",
            f"--state-dir={self.base / 'state'}",
            "--metrics-address=127.0.0.1:0",
            "--no-spawn-mps",
        )
        self.kubelet.wait_for_resources(RESOURCES, PATIENCE_S)
        return agent

    def start_mps(self) -> subprocess.Popen[str]:
        runner = self._start("deviceplugin.mps")
        log = self._log("deviceplugin.mps")
        wait_until(
            lambda: "MPS daemon ready" in log.read_text() or runner.poll() is not None,
            "the MPS daemon is ready",
        )
        assert runner.poll() is None, log.read_text()
        return runner

    def admit(self, name: str, family: str, core: int, memory: int) -> AdmittedPod:
        limits = {f"nvidia.com/{family}-core": core, f"nvidia.com/{family}-memory": memory}
        return self.kubelet.admit(PodManifest(name, (ContainerManifest("c", limits=limits),)))

    def limit(self, pod: AdmittedPod) -> DeviceLimit:
        options = self.kubelet.run_options(pod, "c")
        assert options.conflicts == ()
        host = {m.container_path: Path(m.host_path) for m in options.mounts}
        assert all(path.exists() for path in host.values())
        (device,) = region.read_limits(host["/run/vgpu/limits"].parent).limits.devices
        assert device.uuid == options.envs["NVIDIA_VISIBLE_DEVICES"]
        return device

    def _log(self, module: str) -> Path:
        return self.base / f"{module}.log"

    def _start(self, module: str, *options: str) -> subprocess.Popen[str]:
        with open(self._log(module), "a") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", module, f"--config={EXAMPLE}",
                 f"--run-dir={self.run_dir}", *options],
                cwd=ROOT, env=self.environment, stderr=log, text=True,
            )  # fmt: skip
        self._started.append(process)
        return process

    def stop(self) -> None:
        for process in self._started:
            process.kill()
            process.wait(PATIENCE_S)
        self.kubelet.stop()
        self.machine.remove()


@pytest.fixture
def node() -> Iterator[SimulatedNode]:
    # Short, whatever the test is called: a socket's path has room for 107 bytes.
    with tempfile.TemporaryDirectory(prefix="vgpu-", dir="/tmp") as base:
        node = SimulatedNode(Path(base))
        try:
            yield node
        finally:
            node.stop()


def test_a_killed_agent_comes_back_with_every_slice(node: SimulatedNode) -> None:
    agent = node.start_agent()
    pod = node.admit("a", "vgpu", 60, 50)
    before = node.limit(pod)
    assert before.uuid == node.machine.devices[1].uuid
    assert (before.memory_limit_bytes, before.core_percent) == (50 * GIB, 60)

    agent.kill()
    agent.wait(PATIENCE_S)
    wait_until_lost(node.kubelet)
    node.start_agent()

    assert node.limit(pod) == before
    with pytest.raises(AdmissionFailed):
        node.admit("b", "vgpu", 60, 10)
    node.limit(node.admit("c", "vgpu", 40, 30))


def test_an_agent_told_to_end_leaves_no_socket(node: SimulatedNode) -> None:
    agent = node.start_agent()

    agent.send_signal(signal.SIGTERM)

    assert agent.wait(PATIENCE_S) == 0
    assert not list((node.base / "kubelet/device-plugins").glob("nvidia*"))


def test_an_mps_pod_starts_once_the_daemon_answers(
    node: SimulatedNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = node.start_mps()
    agent = node.start_agent()

    device = node.limit(node.admit("a", "mps", 50, 8))

    gpu = node.machine.devices[0]
    assert device.uuid == gpu.uuid
    assert (device.mps_thread_percentage, device.mps_pinned_bytes) == (50, 8 * GIB)
    agent.send_signal(signal.SIGTERM)
    assert agent.wait(PATIENCE_S) == 0
    monkeypatch.setattr(os, "environ", node.environment)
    assert control_pipe.is_ready(node.run_dir, gpu.uuid, PATIENCE_S), (
        "the daemon ended with the agent"
    )
    runner.send_signal(signal.SIGTERM)
    assert runner.wait(PATIENCE_S) == 0
    assert not control_pipe.is_ready(node.run_dir, gpu.uuid)
