"""The demo's processes: started through `launch`, watched, and ended together.

Started from the main thread only, because PR_SET_PDEATHSIG goes by the parent *thread*. Each is a
session of its own, so that Ctrl-C reaches the demo alone, which then ends them in order.
"""

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO

from libvgpu.artifacts import PACKAGE
from libvgpu.errors import VgpuError

from .launch import Order
from .workspace import Workspace, start_time_ticks

_LAST_LINES = 5
_END_WAIT_S = 5.0


class ChildError(VgpuError):
    """A process of the demo ended that should have run on."""


class Child:
    """One process; ``lines`` takes its stdout, where asked for, until ``reader`` ends."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], log: Path) -> None:
        self.name = name
        self.process = process
        self.log = log
        self.lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.reader = threading.Thread(
            target=self._read, args=(process.stdout,), name=f"output of {name}", daemon=True
        )
        self.reader.start()

    def _read(self, stream: IO[bytes] | None) -> None:
        for line in stream or ():
            self.lines.put(line.decode(errors="replace"))

    def last_words(self) -> str:
        """Returns the end of what it wrote to stderr, for a message."""
        lines = self.log.read_text(errors="replace").splitlines()
        return " | ".join(line.strip() for line in lines[-_LAST_LINES:] if line.strip())


class Children:
    """All processes of one demo."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._logs = workspace.path("logs")
        self._children: list[Child] = []
        self._started: list[tuple[str, int, int | None]] = []

    def start(self, order: Order, read_output: bool = False) -> Child:
        """Starts one process.

        Args:
            order: what it becomes; ``parent_pid`` is filled in here.
            read_output: give its stdout line by line; otherwise stdout goes to its log too.
        """
        log = self._logs / f"{len(self._children)}-{order.name.replace('/', '-')}.log"
        with open(log, "wb") as stderr:
            process = subprocess.Popen(
                [sys.executable, "-m", "vgpuctl.demo.launch"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE if read_output else stderr,
                stderr=stderr,
                env=tool_environment(),
                start_new_session=True,
            )
        child = Child(order.name, process, log)
        self._children.append(child)
        self._started.append((order.name, process.pid, start_time_ticks(process.pid)))
        self._workspace.record(order.name, process.pid)
        assert process.stdin is not None
        try:
            with process.stdin as stdin:
                stdin.write(replace(order, parent_pid=os.getpid()).encode())
        except BrokenPipeError:
            pass  # it died already; `check` says so
        return child

    def check(self) -> None:
        """Makes sure that all of them still run.

        Raises:
            ChildError: one does not; says which, how it ended and its last words.
        """
        for child in self._children:
            status = child.process.poll()
            if status is not None:
                how = (
                    f"by {signal.Signals(-status).name}" if status < 0 else f"with status {status}"
                )
                words = child.last_words()
                raise ChildError(f"{child.name} ended {how}" + (f": {words}" if words else ""))

    def end(self, child: Child) -> None:
        """Ends one process: SIGTERM, after 5 s SIGKILL; stops watching it."""
        self._children.remove(child)
        _end([child])

    def end_all(self) -> None:
        """Ends all of them, the last started first."""
        while self._children:
            self.end(self._children[-1])

    def alive(self) -> list[str]:
        """Returns the names of all that were ever started and still exist, ended or not."""
        return [
            name
            for name, pid, started in self._started
            if started is not None and start_time_ticks(pid) == started
        ]


def _end(children: Sequence[Child]) -> None:
    for child in children:
        if child.process.poll() is None:
            child.process.terminate()
    deadline = time.monotonic() + _END_WAIT_S
    for child in children:
        try:
            child.process.wait(max(deadline - time.monotonic(), 0))
        except subprocess.TimeoutExpired:
            child.process.kill()
            child.process.wait()


def tool_environment(base: Mapping[str, str] | None = None) -> dict[str, str]:
    """Returns an environment in which ``python -m`` finds this project's packages."""
    env = dict(os.environ if base is None else base)
    root = str(PACKAGE.parent)
    env["PYTHONPATH"] = os.pathsep.join(p for p in (root, env.get("PYTHONPATH")) if p)
    return env
