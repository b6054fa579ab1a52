"""The namespaces of a node, seen from outside: starting, asking and ending what runs in them."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from support import ROOT
from support.waiting import wait_until

END_S = 60.0
RUN_S = 60.0
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class NodeHost:
    """A running `node.keeper` with its `node.init`.

    Attributes:
        base: the directory of its files; ``NAME.log`` has what the process of that name said.
        env: of the node's own programs; nothing of the test run's environment is in it.
        first_pid: of `node.init`, as this process counts.
        ended: whether `end` was called.
        running: names of its processes.
    """

    def __init__(self, base: Path) -> None:
        """Makes the node.

        Args:
            base: a directory with a short name.
        """
        self.base = base
        self.env = {"PATH": _PATH, "HOME": "/root", "LANG": "C.UTF-8"}
        self.ended = False
        self.running: set[str] = set()
        with open(base / "node.log", "ab") as log:
            self._keeper = subprocess.Popen(
                [sys.executable, "-m", "support.node.keeper", base.name],
                cwd=base,
                env=self.env | {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        assert self._read(), (base / "node.log").read_text()
        self.first_pid = psutil.Process(self._keeper.pid).children(recursive=True)[-1].pid

    def start_process(
        self,
        name: str,
        argv: Sequence[str],
        env: Mapping[str, str] | None = None,
        again: bool = False,
    ) -> None:
        """Starts a process of the node; what it says goes to ``NAME.log``.

        Args:
            again: start it again where it ends by itself.
        """
        log = str(self.base / f"{name}.log")
        order = {"argv": list(argv), "env": dict(env or self.env), "log": log, "again": again}
        self.order("start", name=name, **order)
        self.running.add(name)

    def kill(self, name: str) -> None:
        """Ends a process of the node with SIGKILL and waits for its end."""
        self._end_process(name, signal.SIGKILL)

    def stop(self, name: str) -> None:
        """Tells a process of the node to end and waits for it."""
        self._end_process(name, signal.SIGTERM)

    def _end_process(self, name: str, number: int) -> None:
        self.running.remove(name)
        self.order("end", name=name, number=number)
        wait_until(lambda: self.order("status", name=name)["status"] is not None, f"end of {name}")

    def end(self, kill: bool = False) -> int:
        """Ends the node with all that is in it; returns the keeper's status.

        Args:
            kill: end its first process with SIGKILL, which does not get to tidy up.
        """
        if kill:
            os.kill(self.first_pid, signal.SIGKILL)
        assert self._keeper.stdin is not None and self._keeper.stdout is not None
        self._keeper.stdin.close()
        self._keeper.stdout.close()
        self.ended = True
        return self._keeper.wait(END_S)

    # ---- on it -----------------------------------------------------------------------------------

    def order(self, do: str, **values: Any) -> dict[str, Any]:
        """Has `node.init` do something and returns its answer."""
        assert self._keeper.stdin is not None
        self._keeper.stdin.write(json.dumps({"do": do, **values}).encode() + b"\n")
        self._keeper.stdin.flush()
        answer = self._read()
        assert answer is not None, (self.base / "node.log").read_text()
        return answer

    def _read(self) -> dict[str, Any] | None:
        assert self._keeper.stdout is not None
        line = self._keeper.stdout.readline()
        return json.loads(line) if line else None

    def run(self, *argv: str, env: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Runs a program on the node; returns its ``status``, ``out`` and ``err``."""
        return self.order("run", argv=list(argv), env=dict(env or self.env), timeout=RUN_S)

    def inside(self, path: str) -> Path:
        """Returns a path of the node as this process reaches it."""
        return Path(f"/proc/{self.first_pid}/root{path}")
