"""Runs one MPS control daemon for each GPU that is to be under MPS: ``python -m deviceplugin.mps``.

A process of its own, because a daemon that ended with the agent would take its clients with it.
Started by hand, by a DaemonSet of its own, or by the agent, detached. One per run directory: it
holds a lock on ``<run-dir>/mps/lock``. Which GPUs, the agent's file ``wanted`` says at any moment;
while there is none, the config does (`first_wish`). Each GPU has a thread (`gpu_worker`); the main
thread follows the file, and writes down how they are (`state_files`), under one lock.

Told to end, it ends the daemons and puts the compute modes back. Killed, it leaves them running,
and the next runner adopts them, unless they are tied to it.
"""

import fcntl
import logging
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO

import click

from deviceplugin import log
from deviceplugin.config.mps_root import root_problem
from deviceplugin.config.options import (
    DEFAULT_STATE_DIR,
    DIRECTORY,
    config_option,
    state_dir_option,
)
from deviceplugin.inventory.nvml import Inventory, NvmlInventory
from deviceplugin.log import event
from deviceplugin.stopping import stop_on_signals
from libvgpu.allocation_dirs import default_run_dir
from libvgpu.closed_files import open_lock
from libvgpu.errors import MpsError, VgpuError

from .compute_mode import Boards, NvmlBoards
from .control_pipe import tool_path
from .first_wish import first_wish
from .gpu_worker import LOOK_EVERY_S, GpuWorker
from .state_files import (
    GpuMps,
    MpsState,
    Wanted,
    lock_path,
    read_state,
    read_wanted,
    state_path,
    write_state,
)

_LOOK_EVERY_S = 0.35
_JOIN_TIMEOUT_S = 25.0


class Runner:
    """The workers of all GPUs; `follow` from one thread, reports from any."""

    def __init__(
        self, run_dir: Path, boards: Boards, first: Wanted, look_every_s: float, tied: bool
    ) -> None:
        """Starts nothing.

        Args:
            first: what holds until the agent says something.
            look_every_s: see `GpuWorker`.
            tied: see `GpuWorker`.
        """
        self._look_every_s, self._tied = look_every_s, tied
        self._run_dir, self._boards = run_dir, boards
        self._wanted = first
        self._lock = threading.Lock()
        self._workers: dict[str, GpuWorker] = {}
        self._states: dict[str, GpuMps] = {}
        self._said = ""
        before = self._before()
        self._states.update(before)
        for uuid in {*first.gpus, *before}:
            self._add(uuid, before.get(uuid))
        self._wish()

    def follow(self) -> None:
        """Reads what is wanted, and follows it."""
        try:
            wanted = read_wanted(self._run_dir)
            self._said = ""
        except MpsError as error:
            if error.message != self._said:
                event(
                    logging.ERROR,
                    "the wanted state cannot be read, so nothing changes",
                    reason=error.message,
                )
            self._said = error.message
            return
        if wanted is not None and wanted != self._wanted:
            self._wanted = wanted
            for uuid in wanted.gpus:
                if uuid not in self._workers:
                    self._add(uuid, None)
            self._wish()

    def wake(self) -> None:
        """Makes all workers look, and writes the state again: the run directory was emptied."""
        with self._lock:
            self._write()
        for worker in self._workers.values():
            worker.wake()

    def stop(self) -> None:
        """Puts everything back."""
        for worker in self._workers.values():
            worker.end()
        for worker in self._workers.values():
            worker.join(_JOIN_TIMEOUT_S)

    def _before(self) -> dict[str, GpuMps]:
        try:
            state = read_state(self._run_dir)
        except MpsError as error:
            event(
                logging.WARNING,
                "the state of an earlier runner cannot be read, so its compute modes stay",
                reason=error.message,
            )
            return {}
        return dict(state.gpus) if state else {}

    def _add(self, uuid: str, before: GpuMps | None) -> None:
        worker = GpuWorker(
            self._run_dir, uuid, self._boards, self._report, before, self._look_every_s, self._tied
        )
        self._workers[uuid] = worker
        self._tell(worker, uuid)
        worker.start()

    def _wish(self) -> None:
        gpus = self._wanted.gpus
        for uuid, worker in self._workers.items():
            self._tell(worker, uuid)
        with self._lock:
            for uuid in gpus:
                self._states.setdefault(uuid, GpuMps("starting"))
            self._write()  # with the new token: from now on the state answers that wish

    def _tell(self, worker: GpuWorker, uuid: str) -> None:
        wanted = self._wanted
        worker.wish(uuid in wanted.gpus, wanted.gpus.get(uuid, False), wanted.root)

    def _report(self, uuid: str, now: GpuMps | None) -> None:
        with self._lock:
            if now is not None:
                self._states[uuid] = now
            elif self._states.pop(uuid, None) is None:
                return
            self._write()

    def _write(self) -> None:
        try:
            write_state(self._run_dir, MpsState(self._wanted.token, "", self._states))
        except MpsError as error:
            event(logging.ERROR, error.message)


def run(  # noqa: PLR0913 - a parameter for each option
    config: Path,
    run_dir: Path,
    inventory: Inventory,
    boards: Boards,
    stop: threading.Event,
    look_every_s: float = LOOK_EVERY_S,
    tied: bool = False,
    state_dir: Path = DEFAULT_STATE_DIR,
    failure: Callable[[], VgpuError | None] = lambda: None,
    root: str | None = None,
) -> None:
    """Runs the daemons until ``stop`` is set.

    Args:
        config: asked for the GPUs while the agent has not said which.
        look_every_s: how often settings are looked at, and what failed is tried again.
        tied: the daemons end with this process, however that ends.
        state_dir: where the agent keeps the config that it last accepted; only read.
        failure: why this process can run them no more, None while it can.
        root: of the daemons' files until the agent says one; None: as the config says.

    Raises:
        VgpuError: bad config where that is asked, no tool, another runner, or a failure.
    """
    if wrong := root_problem(root or "", (run_dir, state_dir)):
        raise MpsError(f"the MPS root {wrong}")
    first = first_wish(config, run_dir, state_dir, inventory, root)
    lock = _locked(run_dir)
    try:
        try:
            tool_path()
        except MpsError as error:
            _note_problem(run_dir, error)
            raise
        runner = Runner(run_dir, boards, first, look_every_s, tied)
        try:
            while not stop.wait(_LOOK_EVERY_S):
                if not _is_ours(lock, run_dir):
                    lock.close()
                    lock = _locked(run_dir)
                runner.follow()
                if (problem := failure()) is not None:
                    raise problem
                if not state_path(run_dir).exists():
                    runner.wake()
        finally:
            runner.stop()
    finally:
        lock.close()


def _note_problem(run_dir: Path, error: VgpuError) -> None:
    """Leaves word for the agent and `vgpuctl doctor`; what an earlier runner left stays."""
    try:
        before = read_state(run_dir)
        write_state(run_dir, MpsState("", error.message, before.gpus if before else {}))
    except MpsError as unwritten:
        event(logging.WARNING, unwritten.message)


def _locked(run_dir: Path) -> IO[bytes]:
    path = lock_path(run_dir)
    try:
        run_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.parent.mkdir(exist_ok=True)
        file = os.fdopen(open_lock(path), "r+b")
    except OSError as error:
        raise MpsError(f"{path} cannot be opened: {error.strerror}") from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise MpsError(f"another process runs the MPS daemons of {run_dir} already") from None
    return file


def _is_ours(lock: IO[bytes], run_dir: Path) -> bool:
    """Returns whether the lock is still the file of that name: the directory may be emptied."""
    try:
        return os.path.samestat(os.fstat(lock.fileno()), os.stat(lock_path(run_dir)))
    except OSError:
        return False


@click.command(help="Runs one MPS control daemon for each GPU that is shared through MPS.")
@config_option
@click.option("--run-dir", envvar="VGPU_RUN_DIR", type=DIRECTORY)
@state_dir_option
@click.option(
    "--look-every",
    "look_every_s",
    default=LOOK_EVERY_S,
    show_default=True,
    type=click.FloatRange(min=0.1, max=3600),
    metavar="SECONDS",
    help="How often settings are looked at, and what failed is tried again.",
)
@click.option(
    "--tied",
    is_flag=True,
    help="The daemons end with this process even if it is killed: to try things out.",
)
@click.option(
    "--mps-root",
    envvar="MPS_ROOT",
    metavar="DIRECTORY",
    help="Where the daemons' pipes and logs are, until the agent says so; instead of "
    "flags.mpsRoot. [default: the run directory; env: MPS_ROOT]",
)
@click.option("--detach", is_flag=True, help="Run in the background, not as a child of the caller.")
def main(
    config: Path,
    run_dir: Path | None,
    state_dir: Path,
    look_every_s: float,
    tied: bool,
    mps_root: str | None,
    detach: bool,
) -> None:
    """Runs until SIGTERM or SIGINT."""
    log.set_up()
    if detach:
        if os.fork():
            os._exit(0)
        os.setsid()
    stop = stop_on_signals()
    try:
        directory = run_dir or default_run_dir()
        boards = NvmlBoards()
        run(
            config,
            directory,
            NvmlInventory(),
            boards,
            stop,
            look_every_s,
            tied,
            state_dir,
            lambda: boards.failure,
            mps_root,
        )
    except VgpuError as error:
        hint = f" (hint: {error.hint})" if error.hint else ""
        click.echo(f"deviceplugin.mps: {error.message}{hint}", err=True)
        sys.exit(error.exit_status)
