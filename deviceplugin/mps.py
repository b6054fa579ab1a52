"""Runs one MPS control daemon for each GPU of family mps: ``python -m deviceplugin.mps``.

A process of its own, because a daemon that ended with the agent would take its clients with it; the
agent finds the daemons through their pipe directories. Started by hand, by a DaemonSet of its own,
or by the agent, detached. One per run directory: it holds a lock on ``<run-dir>/mps/lock``.

The daemons run in the foreground as children: they are asked to quit when this process is told to
end, and the kernel kills them if it is killed. One that ends on its own is started again.
"""

import ctypes
import fcntl
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO

import click

from libvgpu.allocations import default_run_dir
from libvgpu.errors import MpsError, VgpuError
from libvgpu.limits import Family

from . import log
from .config import load_config
from .inventory import Inventory, NvmlInventory
from .layout import lay_out
from .log import event
from .mps_control import ask, daemon_environment, tool_path, wait_ready
from .slices import pipe_directory
from .stopping import stop_on_signals

_READY_TIMEOUT_S = 20.0
_QUIT_TIMEOUT_S = 3.0
_RESTART_PAUSE_S = 1.0
_LOOK_EVERY_S = 0.2
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)  # loaded here: after fork there is no safe moment


def lock_path(run_dir: Path) -> Path:
    """Returns the file that the runner of ``run_dir`` keeps locked."""
    return run_dir / "mps" / "lock"


def runner_alive(run_dir: Path) -> bool:
    """Returns whether a runner holds the lock of ``run_dir``."""
    try:
        with open(lock_path(run_dir), "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


class Daemon:
    """The control daemon of one GPU, as a child process."""

    def __init__(self, run_dir: Path, uuid: str) -> None:
        self.uuid = uuid
        self._run_dir = run_dir
        self._process: subprocess.Popen[bytes] | None = None
        self._started_at = 0.0

    def start(self) -> None:
        """Starts it; readiness is another question (`mps_control.wait_ready`).

        Raises:
            MpsError: the tool is missing or cannot be run.
        """
        pipe = pipe_directory(self._run_dir, self.uuid)
        parent = os.getpid()

        def end_with_parent() -> None:
            _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:  # it was gone before the line above
                os._exit(1)

        try:
            for directory in (pipe, pipe.parent / "log"):
                directory.mkdir(parents=True, exist_ok=True)
                directory.chmod(0o755)  # clients of any user come in through a bind mount
            with open(pipe.parent / "log" / "stderr.log", "ab") as output:
                self._process = subprocess.Popen(
                    [tool_path(), "-f"],
                    env=daemon_environment(self._run_dir, self.uuid),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    preexec_fn=end_with_parent,
                )
        except OSError as error:
            raise MpsError(
                f"the MPS daemon of GPU {self.uuid} cannot be started: {error}"
            ) from None
        self._started_at = time.monotonic()
        event(logging.INFO, "MPS daemon started", gpu=self.uuid, pid=self._process.pid)

    def revive(self) -> None:
        """Starts it again if it has ended, not more than once a second."""
        process = self._process
        if process is None or process.poll() is None:
            return
        if time.monotonic() - self._started_at >= _RESTART_PAUSE_S:
            event(logging.ERROR, "MPS daemon ended by itself, starting it again", gpu=self.uuid,
                  status=process.returncode)  # fmt: skip
            self.start()

    def stop(self) -> None:
        """Asks it to quit, then insists."""
        process = self._process
        if process is None or process.poll() is not None:
            return
        try:
            ask(self._run_dir, self.uuid, "quit", _QUIT_TIMEOUT_S)
        except MpsError as error:
            event(logging.WARNING, "MPS daemon did not take quit", reason=error.message)
            process.terminate()
        try:
            process.wait(_QUIT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        event(logging.INFO, "MPS daemon stopped", gpu=self.uuid)


def run(config: Path, run_dir: Path, inventory: Inventory, stop: threading.Event) -> None:
    """Runs the daemons until ``stop`` is set.

    Raises:
        VgpuError: bad config, no tool, another runner, or a daemon that does not become ready.
    """
    layout = lay_out(load_config(config), inventory.gpus())
    uuids = [shared.gpu.uuid for shared in layout.of_family(Family.MPS)]
    with _locked(run_dir):
        if not uuids:
            event(logging.INFO, "no GPU is in family mps, nothing to run")
        daemons = [Daemon(run_dir, uuid) for uuid in uuids]
        try:
            for daemon in daemons:
                daemon.start()
            for daemon in daemons:
                wait_ready(run_dir, daemon.uuid, _READY_TIMEOUT_S, stop.is_set)
                event(logging.INFO, "MPS daemon ready", gpu=daemon.uuid)
            while not stop.wait(_LOOK_EVERY_S):
                for daemon in daemons:
                    daemon.revive()
        finally:
            for daemon in daemons:
                daemon.stop()


def _locked(run_dir: Path) -> IO[bytes]:
    path = lock_path(run_dir)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = open(path, "ab")  # noqa: SIM115 — the caller's `with` closes it
    except OSError as error:
        raise MpsError(f"{path} cannot be opened: {error.strerror}") from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise MpsError(f"another process runs the MPS daemons of {run_dir} already") from None
    return file


@click.command(help="Runs one MPS control daemon for each GPU of family mps.")
@click.option("--config", required=True, type=click.Path(path_type=Path, dir_okay=False))
@click.option("--run-dir", envvar="VGPU_RUN_DIR", type=click.Path(path_type=Path))
def main(config: Path, run_dir: Path | None) -> None:
    """Runs until SIGTERM or SIGINT."""
    log.set_up()
    stop = stop_on_signals()
    try:
        run(config, run_dir or default_run_dir(), NvmlInventory(), stop)
    except VgpuError as error:
        hint = f" (hint: {error.hint})" if error.hint else ""
        click.echo(f"deviceplugin.mps: {error.message}{hint}", err=True)
        sys.exit(error.exit_status)


if __name__ == "__main__":
    main()
