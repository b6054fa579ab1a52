"""The node: a simulated machine, the kubelet's stand-in, and agent and MPS runner as processes.

Run and state directory have a small file system of their own each, so that they can be full. What
was started is the child of this program, whatever died between, so nothing of it can be left.
"""

import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import libvgpu
from benchmarks.nulldriver import built_client
from deviceplugin.mps.state_files import READY, read_state
from deviceplugin.testing import StandInKubelet
from libvgpu.artifacts import SIM_LIBRARY_DIR
from libvgpu.errors import VgpuError
from libvgpu.sim import Machine, ideal_profile
from vgpuctl.agent_client import agent_report
from vgpuctl.demo import syscalls

from .agent import OFFSET
from .config import GPUS, MEMORY_MIB, Sharing, put

MIB = 1 << 20
CONTEXT_BYTES = 64 * MIB
_RUN_SIZE, _STATE_SIZE = "64m", "4m"
_ROOT = Path(libvgpu.__file__).resolve().parent.parent
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER
_NAME = "chaos"


class ChaosNode:
    """Made by `open_chaos_node`.

    Attributes:
        sharing: the last good config.
        kubelet_lock: taken by who starts the kubelet again, or moves its sockets.
        programs: agent and runner, by name.
    """

    def __init__(self, base: Path, client: Path, logs: Path, seed: int) -> None:
        self.base, self.client, self.logs = base, client, logs
        self.run_dir, self.state_dir, self.config = base / "r", base / "s", base / "config.yaml"
        profile = replace(ideal_profile("t4"), memory_bytes=MEMORY_MIB * MIB)
        self.machine = Machine.create(
            [replace(profile, context_bytes=CONTEXT_BYTES)] * GPUS, base / "m"
        )
        self.uuids = [device.uuid for device in self.machine.devices]
        self.kubelet = StandInKubelet(base / "k", seed, makes_pod_directories=True)
        self.kubelet_lock = threading.Lock()
        self.sharing = Sharing()
        self.clock = base / "clock"
        self.clock.write_bytes(OFFSET.pack(0))
        put(self.config, self.sharing.text())
        self.programs: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> None:
        """Starts the agent or the runner, if it does not run."""
        if name in self.programs and self.programs[name].poll() is None:
            return
        words = {
            "agent": ["benchmarks.chaos.agent", str(self.clock), f"--kubelet-dir={self.base / 'k'}",
                      "--metrics-address=127.0.0.1:0", f"--node-name={_NAME}", "--no-spawn-mps"],
            "runner": ["deviceplugin.mps", "--look-every=0.5"],
        }[name]  # fmt: skip
        places = [f"--config={self.config}", f"--run-dir={self.run_dir}"]
        environment = self.machine.environment() | {"PYTHONPATH": str(_ROOT)}
        with open(self.logs / f"{name}.log", "ab") as log:
            self.programs[name] = subprocess.Popen(
                [sys.executable, "-m", *words, *places, f"--state-dir={self.state_dir}"],
                env=environment, cwd=_ROOT, stdout=log, stderr=log,
            )  # fmt: skip

    def ended(self, name: str) -> int | None:
        """Returns with which status the agent or the runner ended; None while it runs."""
        return self.programs[name].poll()

    def signal(self, name: str, number: int) -> None:
        """Sends the agent or the runner a signal, if it is there."""
        self.programs[name].send_signal(number)

    def last_words(self, name: str, lines: int = 3) -> str:
        """Returns the last lines of a log."""
        text = (self.logs / f"{name}.log").read_text(errors="replace")
        return " | ".join(text.splitlines()[-lines:])

    def daemons(self) -> list[int]:
        """Returns the pids of the MPS daemons and servers."""
        return [pid for pid in self._mine() if b"nvidia-cuda-mps" in _read(pid, "cmdline")]

    def mps_gpus(self) -> list[str]:
        """Returns the GPUs that are under MPS."""
        state = read_state(self.run_dir)
        return list(state.gpus) if state else []

    def set_clock(self, off_s: float) -> None:
        """Sets the agent's wall clock."""
        self.clock.write_bytes(OFFSET.pack(off_s))

    def problem(self) -> str:
        """Returns why the node is not well, or an empty text."""
        for name in ("agent", "runner"):
            if self.ended(name) is not None:
                return f"the {name} does not run"
        try:
            report, mps = agent_report(self.run_dir), read_state(self.run_dir)
        except VgpuError as error:
            return error.message
        phases = {} if mps is None else {uuid: gpu.phase for uuid, gpu in mps.gpus.items()}
        lacking = [each.name for each in report.resources if each.registered_at is None]
        found = {
            "the agent is not healthy": report.loop_problem,
            "podresources is not known": report.podresources_problem,
            "the driver does not answer": report.driver_problem,
            "GPUs are ill": report.unhealthy_gpus,
            "GPUs are left out": report.left_out_gpus,
            "the config is not in force": report.config.error,
            "the kubelet does not know": lacking,
            "MPS is not ready": [uuid for uuid, phase in phases.items() if phase != READY],
        }
        return "; ".join(f"{what}: {why}" for what, why in found.items() if why)

    def _mine(self) -> Iterator[int]:
        mark = f"VGPU_SIM_MACHINE={self.machine.directory}\0".encode()
        for name in os.listdir("/proc"):
            if (
                name.isdecimal()
                and int(name) != os.getpid()
                and mark in _read(int(name), "environ")
            ):
                yield int(name)

    def close(self) -> None:
        """Kills all that runs on the machine."""
        while pids := list(self._mine()):
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            time.sleep(0.02)
        self.kubelet.stop()


def _read(pid: int, name: str) -> bytes:
    try:
        return Path("/proc", str(pid), name).read_bytes() + b"\0"
    except OSError:
        return b""


def _prepare() -> None:
    """Gets mounts of our own, and takes in children whose parents died.

    Raises:
        VgpuError: this user may not.
    """
    try:
        syscalls.unshare(syscalls.CLONE_NEWNS)
        syscalls.mount("", "/", flags=syscalls.MS_REC | syscalls.MS_PRIVATE)
    except OSError as error:
        raise VgpuError(f"chaos mounts what it fills, which needs root: {error}") from error
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)


@contextmanager
def open_chaos_node(logs: Path, seed: int) -> Iterator[ChaosNode]:
    """Makes a node with agent and runner; all of it ends with the block.

    Args:
        logs: a directory for what agent, runner and tenants say.

    Raises:
        VgpuError: this user is not root, there is no compiler, or the agent does not start.
    """
    _prepare()
    with (
        tempfile.TemporaryDirectory(prefix="vgpu-", dir="/tmp") as name,
        built_client(SIM_LIBRARY_DIR / "libcuda.so.1", "chaos_client") as client,
    ):
        base = Path(name)
        for folder, size in (("r", _RUN_SIZE), ("s", _STATE_SIZE)):
            (base / folder).mkdir(mode=0o700)
            options = f"mode=0700,size={size}"
            syscalls.mount("vgpu", str(base / folder), "tmpfs", syscalls.MS_NOSUID, options)
        node = ChaosNode(base, client, logs, seed)
        try:
            node.kubelet.start()
            node.start("runner")
            node.start("agent")
            yield node
        finally:
            node.close()
            for folder in ("r", "s"):
                subprocess.run(["umount", "-R", "-l", base / folder], check=True)
