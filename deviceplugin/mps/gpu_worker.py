"""Keeps one GPU under MPS, or as it was found: a thread for each, so that none waits for another.

Under MPS means: compute mode EXCLUSIVE_PROCESS, a daemon with a server, settings as we gave them.
What was found is written down before it is changed (`state_files`), so that the next runner can put
it back, too. The thread sleeps until daemon or server end, it is told of a new wish, or, where
containers have slices, the settings are due: so the end of a server is noticed at once.
"""

import contextlib
import logging
import os
import select
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from deviceplugin.log import LOGGER, event
from deviceplugin.store.mps_paths import pipe_directory
from libvgpu.errors import MpsError, MpsSilentError

from .client_faults import ClientFaults
from .compute_mode import EXCLUSIVE_PROCESS, Boards
from .daemon import SILENT_S, Daemon
from .daemon_home import DaemonHome
from .restart_policy import RestartPolicy
from .state_files import FAILED, READY, STARTING, STOPPING, GpuMps

_READY_POLL_S = 0.1
#: How often settings are looked at, and what failed is tried again.
LOOK_EVERY_S = 4.9
#: A daemon that refuses the question about its settings so often is not healthy.
_REFUSED_MOST = 2

Report = Callable[[str, GpuMps | None], None]


class _Unwanted(Exception):  # noqa: N818 - the wish has changed, which is no error
    """The GPU is not to be under MPS any more."""


class GpuWorker:
    """Follows the wish for one GPU from `start` to `join`."""

    def __init__(
        self,
        run_dir: Path,
        uuid: str,
        boards: Boards,
        report: Report,
        before: GpuMps | None,
        look_every_s: float = LOOK_EVERY_S,
        tied: bool = False,
    ) -> None:
        """Starts nothing.

        Args:
            report: told how the GPU is after every change; None: as if we had never been.
            before: what an earlier runner left.
            look_every_s: how often settings are looked at, and what failed is tried again.
            tied: daemons end with this process, however that ends.
        """
        self._tied = tied
        self.uuid, self._look_every_s = uuid, look_every_s
        self._run_dir, self._boards, self._report = run_dir, boards, report
        self._left_pid = before.daemon if before else 0
        self._now = replace(before, phase=STARTING, server=0) if before else GpuMps(STARTING)
        self._daemon: Daemon | None = None
        self._wanted = self._occupied = self._over = False
        self._root = ""
        self._has_said_to_stay = False
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._said = ""
        self._refused = 0
        self._restarts = RestartPolicy()
        self._faults = ClientFaults(pipe_directory(run_dir, uuid).parent / "log" / "server.log")
        self._thread = threading.Thread(target=self._run, name=f"mps-{uuid}", daemon=True)

    def start(self) -> None:
        """Begins."""
        self._thread.start()

    def wish(self, wanted: bool, occupied: bool, root: str = "") -> None:
        """Says what is to be.

        Args:
            wanted: the GPU under MPS.
            occupied: containers have slices of it.
            root: where the daemon's files are to be (`DaemonHome`).
        """
        self._wanted, self._occupied, self._root = wanted, occupied, root
        self.wake()

    def wake(self) -> None:
        """Makes it look."""
        os.eventfd_write(self._wake_fd, 1)

    def end(self) -> None:
        """Puts everything back and ends; `join` waits for that."""
        self._over = True
        self.wake()

    def join(self, timeout_s: float) -> None:
        """Waits until it has ended."""
        self._thread.join(timeout_s)

    # ---- the thread --------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            is_over = self._over  # what comes during the turn has a turn of its own
            is_wanted = self._wanted and not is_over
            try:
                rest_s = self._turn(is_wanted)
            except _Unwanted:
                rest_s = 0.0
            except MpsError as error:
                rest_s = self._look_every_s
                if is_wanted and self._is_unwanted():  # then the question was given up
                    rest_s = 0.0
                else:
                    self._fail(error)
            except Exception:  # one GPU's trouble must not end the others' daemons
                LOGGER.exception("the MPS of GPU %s failed", self.uuid)
                rest_s = self._look_every_s
            if is_over:
                return
            self._sleep(rest_s)

    def _turn(self, is_wanted: bool) -> float | None:
        """Does what there is to do; returns how long there is nothing more, None: until woken."""
        if not is_wanted:
            self._put_back()
            return None
        daemon = self._daemon
        if daemon is None:
            daemon = self._set_up()
        elif daemon.process is None or daemon.process.ended():
            self._restart(daemon, "its control daemon ended")
        elif daemon.server is None or daemon.server.ended():
            if self._now.server:  # else it waits for the GPU to be free
                why = "its server ended, and its clients lost their work"
                self._pause(self._note_end(why))
            self._bring_up(daemon)
        elif not daemon.pipe_is_there():
            daemon.stop()
            self._restart(daemon, "its pipe directory was removed or emptied")
        elif self._is_elsewhere() and not self._occupied:
            self._move(daemon)
        elif self._occupied:
            self._say_where_it_stays()
            self._look_for_faults(daemon)
            self._look_at_settings(daemon)
        return self._look_every_s if self._occupied else None

    def _sleep(self, rest_s: float | None) -> None:
        poller = select.poll()
        poller.register(self._wake_fd, select.POLLIN)
        if self._daemon is not None and self._now.phase == READY:
            for process in (self._daemon.process, self._daemon.server):
                if process is not None:
                    poller.register(process, select.POLLIN)
        poller.poll(None if rest_s is None else rest_s * 1000)
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._wake_fd)

    def _set_up(self) -> Daemon:
        problem = self._boards.problem(self.uuid)
        if problem is not None:
            raise MpsError(problem)
        daemon = Daemon(
            self._run_dir,
            self.uuid,
            self._boards.memory_bytes(self.uuid),
            self._tied,
            self._is_unwanted,
            self._root,
        )
        adopted = daemon.adopt(self._left_pid)
        self._left_pid = 0
        if not adopted:
            if self._is_elsewhere():  # an earlier runner's word may say ready: see `_move`
                self._say(replace(self._now, phase=STARTING))
            daemon.prepare(may_move=not self._occupied)
        if self._now.found_mode is None:
            self._check_free()
            # Written down first: a runner that is killed after the change knows what was there.
            self._say(replace(self._now, found_mode=self._boards.compute_mode(self.uuid)))
        self._boards.set_compute_mode(self.uuid, EXCLUSIVE_PROCESS)
        if adopted:
            event(logging.INFO, "MPS daemon adopted", gpu=self.uuid)
        else:
            daemon.start()
        self._daemon = daemon
        self._bring_up(daemon)
        return daemon

    def _check_free(self) -> None:
        """Refuses a GPU that somebody uses: no MPS client could use it at the same time."""
        pids = self._boards.processes(self.uuid)
        if pids:
            raise MpsError(
                f"GPU {self.uuid} is used by process {', '.join(map(str, pids))} without MPS, and "
                "under MPS a GPU has no others; MPS starts when they have ended"
            )

    def _bring_up(self, daemon: Daemon) -> None:
        """Waits until daemon and server are there, and settles them.

        What counts is how long the daemon is silent, not how long all of it takes: one that answers
        late would otherwise be ended and started again for ever.
        """
        assert daemon.process is not None
        self._say(replace(self._now, phase=STARTING, daemon=daemon.process.pid, server=0))
        with self._ending_if_it_fails(daemon):
            self._wait_for_answer(daemon)
            is_served = daemon.find_server()
        if not is_served:
            # A program that came while there was no daemon has the GPU for itself. This daemon
            # stays: who comes from now on is refused, and does not become the next such program.
            self._check_free()
        with self._ending_if_it_fails(daemon):
            if not is_served:
                daemon.start_server()
            daemon.settle()
        assert daemon.server is not None
        self._said = ""
        self._refused = 0
        self._faults.begin()
        self._say(replace(self._now, phase=READY, reason="", server=daemon.server.pid))
        event(logging.INFO, "MPS daemon ready", gpu=self.uuid, server=daemon.server.pid)

    def _wait_for_answer(self, daemon: Daemon) -> None:
        deadline = time.monotonic() + SILENT_S
        while why_silent := daemon.why_silent():
            if self._is_unwanted():
                raise _Unwanted
            if time.monotonic() >= deadline:
                raise MpsError(
                    f"the MPS daemon of GPU {self.uuid} does not answer after "
                    f"{SILENT_S:.0f} s: {why_silent}"
                )
            time.sleep(_READY_POLL_S)

    @contextlib.contextmanager
    def _ending_if_it_fails(self, daemon: Daemon) -> Iterator[None]:
        try:
            yield
        except (MpsError, _Unwanted):
            daemon.stop()
            self._daemon = None  # the next turn starts over
            raise

    def _restart(self, daemon: Daemon, why: str) -> None:
        pause_s = self._note_end(why)
        daemon.forget(end_server=True)
        self._daemon = None
        self._pause(pause_s)
        daemon.prepare()  # where it was: containers that have it mounted come back to it
        daemon.start()
        self._daemon = daemon
        self._bring_up(daemon)

    def _is_elsewhere(self) -> bool:
        return DaemonHome(self._run_dir, self.uuid, self._root).is_elsewhere()

    def _move(self, daemon: Daemon) -> None:
        """Has a daemon run where its files are to be now; nobody has the present ones mounted.

        A container may come at this very moment. It is let start where the state says ready with
        the token of its wish, and a wish has `_occupied` set before its token is written. So ready
        is taken back first: either it waits for the end of the move, or the daemon stays.
        """
        ready = self._now
        self._say(replace(ready, phase=STARTING, reason="its daemon moves"))
        if self._occupied:
            self._say(ready)
            return
        event(logging.INFO, "MPS daemon moves", gpu=self.uuid, root=self._root or self._run_dir)
        daemon.stop()
        self._daemon = None
        self._set_up()

    def _say_where_it_stays(self) -> None:
        is_elsewhere = self._is_elsewhere()
        if is_elsewhere and not self._has_said_to_stay:
            event(
                logging.INFO,
                "MPS daemon stays where it is until the slices of its GPU have ended",
                gpu=self.uuid,
                root=self._root or self._run_dir,
            )
        self._has_said_to_stay = is_elsewhere

    def _note_end(self, why: str) -> float:
        """Reports that MPS ended; returns the pause before its restart, in seconds."""
        pause_s = self._restarts.ended(time.monotonic())
        event(
            logging.ERROR,
            "MPS ended by itself, starting it again",
            gpu=self.uuid,
            reason=why,
            pause_s=f"{pause_s:.0f}",
        )
        self._say(
            replace(
                self._now, phase=STARTING, server=0, reason=why, restarts=self._now.restarts + 1
            )
        )
        return pause_s

    def _pause(self, pause_s: float) -> None:
        deadline = time.monotonic() + pause_s
        while time.monotonic() < deadline:
            if self._is_unwanted():
                raise _Unwanted
            time.sleep(_READY_POLL_S)

    def _is_unwanted(self) -> bool:
        return self._over or not self._wanted

    def _look_for_faults(self, daemon: Daemon) -> None:
        try:
            status = daemon.server_status()
        except MpsError:  # the log tells, too; whether the daemon is well, its settings show
            status = ""
        if self._faults.look(status):
            event(
                logging.ERROR,
                "a fault of one MPS client ended the work of all of them",
                gpu=self.uuid,
                server=self._now.server,
            )
            self._say(replace(self._now, faults=self._now.faults + 1))

    def _look_at_settings(self, daemon: Daemon) -> None:
        try:
            changed = daemon.changed_settings()
            if changed:
                daemon.settle()
        except MpsError as error:
            if self._is_unwanted() or daemon.has_ended():
                return  # the next turn sees to that
            self._refused += 1
            if isinstance(error, MpsSilentError) or self._refused >= _REFUSED_MOST:
                self._fail(error)
            return
        self._refused = 0
        if self._now.phase != READY:
            self._said = ""
            self._say(replace(self._now, phase=READY, reason=""))
        if changed:
            event(
                logging.WARNING,
                "MPS settings were changed through the pipe and put back",
                gpu=self.uuid,
                change=changed,
            )
            self._say(replace(self._now, restored=self._now.restored + 1))

    def _put_back(self) -> None:
        """Ends the daemon and gives the GPU the compute mode that was found."""
        daemon = self._daemon
        if daemon is None and self._left_pid:
            daemon = Daemon(self._run_dir, self.uuid, 0)
            if not daemon.adopt(self._left_pid):
                daemon = None
            self._left_pid = 0
        if daemon is not None:
            self._say(replace(self._now, phase=STOPPING))
            daemon.stop()
        self._daemon = None
        if not self._occupied:
            DaemonHome(self._run_dir, self.uuid).leave()
        if self._now.found_mode is not None:
            self._boards.set_compute_mode(self.uuid, self._now.found_mode)
            event(logging.INFO, "compute mode put back", gpu=self.uuid, mode=self._now.found_mode)
        counted = self._now
        self._now = GpuMps(
            STARTING, restarts=counted.restarts, restored=counted.restored, faults=counted.faults
        )
        self._said = ""
        self._report(self.uuid, None)

    def _fail(self, error: MpsError) -> None:
        if error.message != self._said:
            hint = error.hint or "none"
            event(
                logging.ERROR,
                "MPS of a GPU cannot be served",
                gpu=self.uuid,
                reason=error.message,
                hint=hint,
            )
        self._said = error.message
        self._say(replace(self._now, phase=FAILED, reason=error.message))

    def _say(self, now: GpuMps) -> None:
        self._now = now
        self._report(self.uuid, now)
