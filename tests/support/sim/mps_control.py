"""A control daemon of the simulated MPS, and how to talk to it."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import psutil

from libvgpu.sim import Machine
from support.ended import run_to_end
from support.waiting import PATIENCE_S, wait_until

TOOL = "nvidia-cuda-mps-control"


def is_gone(pid: int) -> bool:
    """Returns whether a process has ended (it may not have been waited for)."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@dataclass
class Control:
    """A pipe directory, with a daemon or without."""

    machine: Machine
    directory: Path
    options: tuple[str, ...] = ()
    daemon: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def env(self, **more: str) -> dict[str, str]:
        return {
            "CUDA_MPS_PIPE_DIRECTORY": str(self.directory / "pipe"),
            "CUDA_MPS_LOG_DIRECTORY": str(self.directory / "log"),
            **more,
        }

    def tool(self, *arguments: str, say: str = "") -> subprocess.CompletedProcess[str]:
        # a bare interpreter, as on a node: nothing of this project can be imported
        env = {**self.machine.environment({"PATH": os.defpath}), **self.env()}
        return run_to_end([TOOL, *arguments], input=say, env=env)

    def ask(self, command: str) -> str:
        done = self.tool(say=command + "\n")
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def server(self) -> int:
        """Returns the server's process id, which is there once a client has been."""
        return int(self.ask("get_server_list"))

    def client_pids(self) -> list[int]:
        return [int(pid) for pid in self.ask(f"get_client_list {self.server()}").split()]

    @contextmanager
    def running(self, **more: str) -> Iterator["Control"]:
        """Runs the daemon in the foreground, as a child of the test."""
        self.start(subprocess.DEVNULL, **more)
        try:
            yield self
        finally:
            self.stop()

    def start(self, stdout: IO[bytes] | int = subprocess.DEVNULL, **more: str) -> None:
        env = {**self.machine.environment(), **self.env(**more)}
        self.daemon = subprocess.Popen([TOOL, "-f", *self.options], env=env, stdout=stdout)
        wait_until(lambda: self.tool(say="get_server_list").returncode == 0, "the daemon answers")

    def stop(self) -> None:
        assert self.daemon
        self.daemon.send_signal(signal.SIGTERM)  # ends the server, too
        try:
            self.daemon.wait(PATIENCE_S)
        finally:
            self.daemon.kill()
            self.daemon.wait()
