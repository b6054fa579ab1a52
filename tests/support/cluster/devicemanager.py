"""The judge of tests/e2e/devicemanager: building it, and a node agent for it to judge."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from libvgpu.sim.machine import Machine
from libvgpu.sim.profiles import PROFILES
from support import ROOT
from support.cluster.go_programs import GoPrograms
from support.waiting import PATIENCE_S

SOURCE = ROOT / "tests/e2e/devicemanager"
PROGRAMS = GoPrograms("devicemanager", "the kubelet's own device manager", ("./devicemanager",))
#: Two NUMA nodes of four GPUs, two sizes; one GPU of each node is under MPS, one is not shared.
GPUS = ("t4", "a100-40g", "t4", "t4", "t4", "a100-40g", "t4", "t4")
CONFIG = """\
version: v1
sharing:
  fractional:
    - {family: vgpu, devices: [0, 1, 4, 5], memoryUnit: 1Gi}
    - {family: mps, devices: [2, 6], memoryUnit: 1Gi}
"""


def missing() -> str:
    """Returns as a sentence what keeps the judge from being built, empty if nothing does."""
    return PROGRAMS.missing()


def build() -> Path:
    """Returns the judge.

    Raises:
        AssertionError: it does not build, with what the compiler says.
    """
    return PROGRAMS.build() / "devicemanager"


@dataclass(frozen=True)
class Judgement:
    """What the judge printed, and where the agent's log is."""

    status: int
    summary: dict[str, Any]
    said: str
    agent_log: str


class RestartingAgent:
    """``python -m deviceplugin``, started again whenever it ends; its process id is in a file."""

    def __init__(self, base: Path, environment: dict[str, str]) -> None:
        self.base, self._environment = base, environment
        self.log, self.pid_file = base / "agent.log", base / "agent.pid"
        self._over = threading.Event()
        self._process = self._start()
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()

    def _start(self) -> "subprocess.Popen[bytes]":
        with open(self.log, "ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "deviceplugin", "--config", str(self.base / "config.yaml"),
                 "--kubelet-dir", str(self.base / "k"), "--state-dir", str(self.base / "s"),
                 "--run-dir", str(self.base / "r"), "--metrics-address=127.0.0.1:0",
                 "--no-spawn-mps"],
                cwd=ROOT, env=self._environment, stderr=log,
            )  # fmt: skip
        new = self.pid_file.with_suffix(".new")
        new.write_text(f"{process.pid}\n")
        new.replace(self.pid_file)
        return process

    def _watch(self) -> None:
        while not self._over.is_set():
            if self._process.poll() is not None and not self._over.is_set():
                self._process = self._start()
            time.sleep(0.01)

    def stop(self) -> None:
        """Ends it for good."""
        self._over.set()
        self._watcher.join()
        self._process.kill()
        self._process.wait(PATIENCE_S)


@contextmanager
def judged_node() -> Iterator[Path]:
    """A simulated machine with a node agent, in a directory with a short name, which is yielded."""
    with tempfile.TemporaryDirectory(prefix="vgpu-", dir="/tmp") as name:
        base = Path(name)
        (base / "config.yaml").write_text(CONFIG)
        machine = Machine.create([PROFILES[gpu] for gpu in GPUS], base / "machine")
        environment = machine.environment(os.environ)
        environment["PYTHONPATH"] = str(ROOT)
        with open(base / "mps.log", "wb") as log:
            mps = subprocess.Popen(
                [sys.executable, "-m", "deviceplugin.mps", "--config", str(base / "config.yaml"),
                 "--run-dir", str(base / "r")],
                cwd=ROOT, env=environment, stderr=log,
            )  # fmt: skip
        agent = RestartingAgent(base, environment)
        try:
            yield base
        finally:
            agent.stop()
            mps.send_signal(signal.SIGTERM)
            try:
                mps.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                mps.kill()
            machine.remove()


def run_judge(judge: Path, base: Path, *flags: str, timeout_s: float) -> Judgement:
    """Runs the judge on a `judged_node`."""
    summary = base / "summary.json"
    result = subprocess.run(
        [str(judge), f"--dir={base / 'k'}", f"--run-dir={base / 'r'}", f"--out={summary}",
         f"--agent-pid-file={base / 'agent.pid'}",
         f"--reader={sys.executable} {SOURCE / 'read_limits.py'}", *flags],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
        timeout=timeout_s, check=False,
    )  # fmt: skip
    found = json.loads(summary.read_text()) if summary.exists() else {}
    return Judgement(result.returncode, found, result.stderr, (base / "agent.log").read_text())
