"""A simulated machine with a run directory, the MPS runner on it, and clients of its daemons."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

import psutil

from deviceplugin.mps import control_pipe
from deviceplugin.mps.state_files import (
    READY,
    GpuMps,
    MpsState,
    Wanted,
    mps_directory,
    new_token,
    read_state,
    write_wanted,
)
from deviceplugin.store.mps_paths import pipe_directory
from libvgpu.sim import Machine
from support import ROOT, warm
from support.waiting import PATIENCE_S, wait_until
from support.warm_program import Program

EXCLUSIVE_PROCESS, DEFAULT_MODE = 3, 0
_KERNEL = 2  # the parent of its threads
#: More than an agent's child takes to become a runner, its daemon and the daemon's server.
_GENERATIONS = 8

_CONFIG = "version: v1\nsharing:\n  fractional:\n  - {%s, devices: [%s]}\n"
# In front of the MPS tool: asks it for what it is told, but late where a command begins with a word
# that stands in a file next to it. What was answered late is written down.
_LATE_TOOL = """#!{python}
import os, pathlib, subprocess, sys, time
here, tool = pathlib.Path(__file__).parent, {tool!r}
if len(sys.argv) > 1:
    os.execv(tool, [tool, *sys.argv[1:]])
text = sys.stdin.read()
word, _, seconds = (here / "late").read_text().partition(" ")
is_late = any(line.startswith(word) for line in text.splitlines())
if is_late:
    time.sleep(float(seconds))
status = subprocess.run([tool], input=text, text=True).returncode
if is_late:
    with open(here / "answered", "a") as file:
        file.write(word + chr(10))
sys.exit(status)
"""
_MODE = """
import pynvml, sys
pynvml.nvmlInit()
handle = pynvml.nvmlDeviceGetHandleByUUID(sys.argv[1])
print(pynvml.nvmlDeviceGetComputeMode(handle))
"""


class Client:
    """`mps_steady` with its answers."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.first = int(self._line())

    def ask(self) -> tuple[int, int]:
        """Returns how many launches it completed, and the CUresult of the latest."""
        assert self.process.stdin is not None
        self.process.stdin.write("?")
        self.process.stdin.flush()
        launches, result = self._line().split()
        return int(launches), int(result)

    def works(self) -> bool:
        """Returns whether it completes further launches."""
        before, result = self.ask()
        deadline = time.monotonic() + PATIENCE_S
        while result == 0 and time.monotonic() < deadline:
            now, result = self.ask()
            if now > before:
                return result == 0
            time.sleep(0.01)
        return False

    def end(self) -> None:
        """Has it end by itself."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait(PATIENCE_S)

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()


@dataclass
class MpsNode:
    """What a test has of it.

    Attributes:
        program: `mps_steady`, built.
    """

    machine: Machine
    base: Path
    program: Path
    started: list[subprocess.Popen[str]] = field(default_factory=list)
    runners: list[Program] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.base.mkdir(exist_ok=True)
        self.run_dir = self.base / "run"
        self.log = self.base / "runner.log"
        self.share(range(len(self.machine.devices)))

    def share(self, indexes: range, sharing: str = "family: mps", rules: str = "") -> None:
        """Writes the config: these GPUs are shared so, and these are the ``limits``."""
        devices = ", ".join(map(str, indexes))
        new = self.base / "config.new"
        new.write_text(_CONFIG % (sharing, devices) + rules)
        new.replace(self.base / "config.yaml")

    @property
    def uuids(self) -> list[str]:
        """The GPUs by index."""
        return [device.uuid for device in self.machine.devices]

    # ---- the runner --------------------------------------------------------------------------

    def start_runner(self, *options: str, environment: Mapping[str, str] | None = None) -> Program:
        """Starts the runner, leader of a process group; its log goes to `log`."""
        with open(self.log, "a") as log:
            process = warm.start(
                ["-m", "deviceplugin.mps",
                 f"--config={self.base / 'config.yaml'}", f"--run-dir={self.run_dir}",
                 "--look-every=0.5", *options],
                {**self.machine.environment(os.environ), "PYTHONPATH": str(ROOT),
                 **(environment or {})},
                log, group=True,
            )  # fmt: skip
        self.runners.append(process)
        return process

    def end_runner(self, runner: Program) -> None:
        """Tells a runner to end and waits for it."""
        runner.send_signal(signal.SIGTERM)
        assert runner.wait(PATIENCE_S) == 0, self.log.read_text()

    def want(self, *indexes: int, occupied: bool = True, root: str = "") -> None:
        """Says in the agent's place which GPUs are to be under MPS, and where its files are."""
        gpus = {self.uuids[index]: occupied for index in indexes}
        write_wanted(self.run_dir, Wanted(new_token(), gpus, root))

    def state(self) -> MpsState:
        """Returns what the runner says."""
        return read_state(self.run_dir) or MpsState()

    def gpu(self, index: int = 0) -> GpuMps:
        """Returns how a GPU is."""
        return self.state().gpus.get(self.uuids[index], GpuMps("unknown"))

    def wait_phase(self, index: int = 0, phase: str = READY) -> GpuMps:
        """Waits until a GPU is in a phase; returns how it is then."""
        wait_until(
            lambda: self.gpu(index).phase == phase,
            f"GPU {index} is {phase}: {self.gpu(index)} {self.said()}",
        )
        return self.gpu(index)

    def wait_gone(self, index: int = 0) -> None:
        """Waits until a GPU is not under MPS any more."""
        wait_until(lambda: self.uuids[index] not in self.state().gpus, f"GPU {index} is put back")

    def said(self) -> str:
        """Returns the runner's log."""
        return self.log.read_text() if self.log.exists() else ""

    def start_daemon(self, index: int = 0) -> subprocess.Popen[str]:
        """Starts a daemon in a GPU's pipe directory, as no runner does; waits until it answers."""
        pipe = pipe_directory(self.run_dir, self.uuids[index])
        pipe.mkdir(parents=True)
        process = subprocess.Popen(
            [control_pipe.TOOL, "-f"],
            text=True,
            stdout=subprocess.DEVNULL,
            env={
                **self.machine.environment(os.environ),
                "CUDA_VISIBLE_DEVICES": self.uuids[index],
                "CUDA_MPS_PIPE_DIRECTORY": str(pipe),
                "CUDA_MPS_LOG_DIRECTORY": str(self.base / "log"),
            },
        )
        self.started.append(process)
        wait_until((pipe / f"{control_pipe.TOOL}.pid").exists, "the daemon is there")
        return process

    # ---- a node whose processors are all taken -------------------------------------------------

    def late_tool(self) -> dict[str, str]:
        """Returns the variables of a runner whose tool answers late, as `be_late` says."""
        path = self.machine.environment(os.environ)["PATH"]
        folder = self.base / "late"
        folder.mkdir()
        (folder / "late").write_text("nothing 0")
        tool = folder / control_pipe.TOOL
        real = shutil.which(control_pipe.TOOL, path=path)
        tool.write_text(_LATE_TOOL.format(python=sys.executable, tool=real))
        tool.chmod(0o755)
        return {"PATH": os.pathsep.join([str(folder), path])}

    def be_late(self, word: str, seconds: float) -> None:
        """From now on what begins with a word is answered this much later."""
        draft = self.base / "late" / "late.new"
        draft.write_text(f"{word} {seconds}")
        draft.replace(draft.with_name("late"))

    def late_answers(self) -> int:
        """Returns how many came although they were late."""
        answered = self.base / "late" / "answered"
        return len(answered.read_text().splitlines()) if answered.exists() else 0

    # ---- the GPUs ----------------------------------------------------------------------------

    def mode(self, index: int = 0) -> int:
        """Returns a GPU's compute mode as NVML tells it."""
        words = ["-c", _MODE, self.uuids[index]]
        done = warm.run(words, self.machine.environment(os.environ))
        done.check_returncode()
        return int(done.stdout)

    def ask(self, command: str, index: int = 0) -> str:
        """Says something to a GPU's daemon, as root in a container may."""
        with mock.patch.dict(os.environ, self.machine.environment(os.environ)):
            return control_pipe.ask(self.run_dir, self.uuids[index], command, PATIENCE_S)

    def clients(self, index: int = 0) -> list[int]:
        """Returns the process ids of a GPU's clients."""
        return [int(w) for w in self.ask("get_device_client_list", index).split() if w.isdigit()]

    def environment(self, index: int = 0, **more: str) -> dict[str, str]:
        """Returns the environment of a client."""
        return {
            **self.machine.environment({"PATH": os.defpath}),
            "CUDA_VISIBLE_DEVICES": self.uuids[index],
            "CUDA_MPS_PIPE_DIRECTORY": str(pipe_directory(self.run_dir, self.uuids[index])),
            **more,
        }

    def client(self, index: int = 0, user: int | None = None, **more: str) -> Client:
        """Starts a client and returns it when it has a context, or was refused."""
        process = subprocess.Popen(
            [self.program],
            env=self.environment(index, **more),
            text=True,
            user=user,
            group=user,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.started.append(process)
        return Client(process)

    def close(self) -> None:
        """Ends all that was started, daemons and detached runners too."""
        for runner in self.runners:
            runner.kill()
            runner.wait(PATIENCE_S)
        for process in self.started:
            process.kill()
            process.wait(PATIENCE_S)
            for end in (process.stdin, process.stdout):
                if end is not None:
                    with contextlib.suppress(BrokenPipeError):
                        end.close()
        without_any = 0
        while without_any < _GENERATIONS:
            left, are_all = _of_run_dir(self.run_dir)
            without_any = 0 if left else _GENERATIONS if are_all else without_any + 1
            for other in left:
                with contextlib.suppress(psutil.Error):
                    other.kill()


def _of_run_dir(run_dir: Path) -> tuple[list[psutil.Process], bool]:
    """Returns the runners of a run directory, the daemons with their servers, and if these are all.

    One that ends while it is looked at may have left another that came too late for the list, as
    runners do that detach themselves. So a look may miss one generation, and on a busy machine,
    where something always ends, any look may. One that begins another program has no command line
    for a moment, and neither have threads of the kernel.
    """
    found, are_all = [], True
    began_s = psutil.Process().create_time()
    for pid in psutil.pids():
        try:
            process = psutil.Process(pid)
            arguments = process.cmdline()
            if not arguments:
                are_all &= process.create_time() < began_s or process.ppid() == _KERNEL
                continue
            pipe = process.environ().get("CUDA_MPS_PIPE_DIRECTORY", "")
        except psutil.ZombieProcess:
            continue
        except psutil.NoSuchProcess:
            are_all = False
            continue
        except psutil.Error:
            continue
        # An agent was killed, and a child of it is about to become a runner.
        is_runner = not {"deviceplugin", "deviceplugin.mps"}.isdisjoint(arguments) and any(
            str(run_dir) == each.removeprefix("--run-dir=") for each in arguments
        )
        is_daemon = pipe.startswith(str(mps_directory(run_dir)))
        if is_runner or (is_daemon and process.pid != os.getpid()):
            found.append(process)
    return found, are_all
