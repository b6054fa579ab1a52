"""The real node agent, as a process, on a simulated machine, with a kubelet that takes the time.

The run directory lies in /dev/shm where there is one, since on a node it is a tmpfs; the state
directory lies on the disk of the temporary directory.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import libvgpu
from deviceplugin.testing.lean_kubelet import LeanKubelet, LeanPod
from libvgpu import region
from libvgpu.errors import VgpuError
from libvgpu.sim import Machine, Profile, ideal_profile

from .simulated_cluster.api_server import SimulatedApiServer

MIB = 1 << 20
#: 16 GPUs of 288 units: the largest machine that the simulator has, with memory cut finely.
GPUS = 16
UNIT_BYTES = 512 * MIB
UNITS = 288
CASE = f"{GPUS} GPUs x (100 core + {UNITS} memory units)"
RESOURCES = ("nvidia.com/vgpu-core", "nvidia.com/vgpu-memory")
CONFIG = f"""\
version: v1
sharing:
  fractional:
    - {{family: vgpu, memoryUnit: {UNIT_BYTES // MIB}Mi}}
"""
_PROFILE = "h200-141g"
# The agent as it is, but for where a pod has its service account.
_WITH_ACCOUNT = """\
import pathlib, runpy
from deviceplugin.kube.api_client import ApiServer
ApiServer.from_environment.__func__.__defaults__ = (pathlib.Path({account!r}),)
runpy.run_module("deviceplugin", run_name="__main__", alter_sys=True)
"""
_ROOT = Path(libvgpu.__file__).resolve().parent.parent
_SHARED_MEMORY = Path("/dev/shm")
_READY_S = 60.0
_END_S = 10.0
_POLL_S = 0.05
_LAST_LINES = 5
_SEED = 12


def profiles() -> list[Profile]:
    """Returns the GPUs of the machine."""
    return [replace(ideal_profile(_PROFILE), memory_bytes=UNITS * UNIT_BYTES)] * GPUS


class AgentNode:
    """A node; made by `open_node`.

    Attributes:
        machine: the simulated one.
        kubelet: its kubelet, serving.
        config: the agent's config file, as the agent was told of it.
    """

    def __init__(
        self,
        base: Path,
        run_dir: Path,
        config: Path,
        gpus: Sequence[Profile],
        api: SimulatedApiServer | None,
    ) -> None:
        self.base, self.run_dir, self.state_dir = base, run_dir, base / "state"
        self.config, self._api = config, api
        self.machine = Machine.create(gpus, base / "machine")
        self.kubelet = LeanKubelet(base / "kubelet", _SEED)
        self._log = base / "agent.log"
        self._agent: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The agent's process number."""
        assert self._agent is not None
        return self._agent.pid

    def start(self) -> None:
        """Starts kubelet and agent, and waits until all units are offered.

        Raises:
            VgpuError: the agent ended, or does not get there.
        """
        self.kubelet.start()
        environment = self.machine.environment()
        path = [str(_ROOT), environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, path))
        program = ["-m", "deviceplugin"]
        if self._api is not None:
            environment |= self._api.environment()
            program = ["-c", _WITH_ACCOUNT.format(account=str(self._api.account))]
        with open(self._log, "ab") as log:
            self._agent = subprocess.Popen(
                [sys.executable, *program, f"--config={self.config}",
                 f"--kubelet-dir={self.base / 'kubelet'}", f"--state-dir={self.state_dir}",
                 f"--run-dir={self.run_dir}", "--metrics-address=127.0.0.1:0",
                 "--node-name=bench"],
                env=environment, stdout=log, stderr=log,
            )  # fmt: skip
        self.wait_registered()

    def wait_registered(self) -> None:
        """Waits until all resources are registered and have units.

        Raises:
            VgpuError: the agent ended, or does not get there.
        """
        self.kubelet.wait_for_resources(RESOURCES, _READY_S, self.check)

    def check(self) -> None:
        """Makes sure that the agent runs.

        Raises:
            VgpuError: it does not; with its last words.
        """
        assert self._agent is not None
        status = self._agent.poll()
        if status is not None:
            words = self._log.read_text(errors="replace").splitlines()[-_LAST_LINES:]
            raise VgpuError(f"the agent ended with status {status}: {' | '.join(words)}")

    def wait_for(self, what: str, is_so: Callable[[], bool], timeout_s: float) -> None:
        """Waits until something is so.

        Raises:
            VgpuError: it is not in time, or the agent ended.
        """
        deadline = time.monotonic() + timeout_s
        while not is_so():
            self.check()
            if time.monotonic() > deadline:
                raise VgpuError(f"after {timeout_s:g} s {what}")
            time.sleep(_POLL_S)

    def environment_in(self, pod: LeanPod) -> dict[str, str]:
        """Returns the environment of a program in a pod's slice, on the host's paths of its mounts.

        The container runtime would show it the slice's GPU alone.
        """
        environment = self.machine.environment({"PATH": os.defpath})
        preloads = Path(pod.mounts["/etc/ld.so.preload"])
        slice_ = Path(pod.mounts["/run/vgpu/limits"]).parent
        (device,) = region.read_limits(slice_).limits.devices
        return environment | {
            "LD_PRELOAD": str(preloads.with_name("libvgpu.so")),
            "VGPU_DIR": str(slice_),
            "CUDA_VISIBLE_DEVICES": device.uuid,
        }

    def stop_agent(self) -> None:
        """Ends the agent alone."""
        if self._agent is not None:
            self._agent.terminate()
            try:
                self._agent.wait(_END_S)
            except subprocess.TimeoutExpired:
                self._agent.kill()
                self._agent.wait()

    def stop(self) -> None:
        """Ends the agent and the kubelet."""
        self.stop_agent()
        self.kubelet.stop()


def write_config(base: Path) -> Path:
    """Writes the config file below ``base`` and returns its path."""
    config = base / "config.yaml"
    config.write_text(CONFIG)
    return config


@contextmanager
def open_node(
    gpus: Sequence[Profile],
    make_config: Callable[[Path], Path] = write_config,
    api: SimulatedApiServer | None = None,
) -> Iterator[AgentNode]:
    """Makes a node and starts it; its directories go with it.

    Args:
        gpus: of the simulated machine.
        make_config: writes the config file below a directory and returns what to tell the agent.
        api: what the agent finds as its cluster's API server, serving; None for no cluster.

    Raises:
        VgpuError: the agent does not start.
    """
    runs = _SHARED_MEMORY if os.access(_SHARED_MEMORY, os.W_OK) else None
    with (
        # Short: a Unix socket's path has room for 107 bytes.
        tempfile.TemporaryDirectory(prefix="vgpu-", dir="/tmp") as base,
        tempfile.TemporaryDirectory(prefix="vgpu-run-", dir=runs) as run_dir,
    ):
        node = AgentNode(Path(base), Path(run_dir), make_config(Path(base)), gpus, api)
        try:
            node.start()
            yield node
        finally:
            node.stop()
