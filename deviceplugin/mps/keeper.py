"""The agent's side of MPS: says which GPUs are to be under it and waits where a container needs it.

What is wanted goes into a file (`state_files`), which the runner follows; how the GPUs are, the
runner writes into another. So the agent never speaks to a daemon while a runner lives, and nothing
that a container does to a pipe directory can hold the agent up. A runner that is there is adopted.
Otherwise, unless told not to, the agent starts ``python -m deviceplugin.mps`` detached from itself:
in a session of its own and no child of the agent, so it outlives the agent, its process group and
its descendants; its log is ``<run-dir>/mps/runner.log``.
"""

import logging
import math
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from deviceplugin import runtime
from deviceplugin.log import event
from deviceplugin.model.notices import EventReason, node_notice
from libvgpu.errors import MpsError

from .control_pipe import is_ready
from .state_files import (
    FAILED,
    READY,
    GpuMps,
    MpsState,
    Wanted,
    lock_path,
    mps_directory,
    new_token,
    read_state,
    read_wanted,
    runner_alive,
    write_wanted,
)
from .telling import MpsTelling, Tenants

#: The kubelet gives PreStartContainer 30 s. The rest is for podresources and the disk before this,
#: and for the refusal to arrive, which says more than the kubelet's own word for it.
_READY_TIMEOUT_S = 25.0
#: A daemon is asked for so long even where the time is up.
_LEAST_ASK_S = 1.0
_POLL_S = 0.1
#: So many containers wait at a time: each keeps a thread of its plugin's server
#: (`kubelet.plugin_server`), and those that are left admit pods meanwhile.
MOST_WAITING = 5
_TURN_S = 0.5
#: A runner that could not do its work is tried again this much later.
_RETRY_AFTER_S = 15.0


class MpsDemand(Tenants, Protocol):
    """What containers need of MPS (`NodeState`)."""

    def mps_gpus(self) -> dict[str, bool]:
        """Returns the GPUs that are to be under MPS now, and whether containers have slices."""
        ...


class MpsKeeper:
    """The agent's view of the MPS daemons; `look` from one thread, the others from any."""

    def __init__(
        self,
        config: Path,
        run_dir: Path,
        spawn: bool,
        demand: MpsDemand,
        ready_timeout_s: float = _READY_TIMEOUT_S,
        is_running: Callable[[str], bool] = lambda allocation_id: True,
        state_dir: Path | None = None,
        root: Callable[[], str] = str,
    ) -> None:
        """Does nothing yet.

        Args:
            config: what a runner is told of it: a file, or a directory of named ones.
            spawn: whether to start a runner where there is none.
            demand: knows what the containers of this node need.
            ready_timeout_s: how long a container waits.
            is_running: whether processes of an allocation live.
            state_dir: where the accepted config is kept, for the runner; None for its own default.
            root: where pipes and logs are to be now (`daemon_home`).
        """
        self._config, self._run_dir, self._spawn = config, run_dir, spawn
        self._state_dir, self._root = state_dir, root
        self._demand = demand
        self._telling = MpsTelling(demand, is_running)
        self._timeout_s = ready_timeout_s
        self._lock = runtime.lock()
        self._waiting = runtime.semaphore(MOST_WAITING)
        self._child: subprocess.Popen[bytes] | None = None
        self._said = self._problem_said = ""
        self._not_before = 0.0

    def look(self) -> None:
        """Says what is wanted, starts a runner if one is needed, tells what has happened."""
        wanted = self._want()
        self._reap()
        state = self._state()
        self._telling.follow(state.gpus)
        if state.problem != self._problem_said and state.problem:
            event(
                logging.ERROR,
                "MPS of a GPU cannot be served",
                notice=node_notice(EventReason.MPS_UNAVAILABLE, state.problem),
                gpu=",".join(wanted.gpus),
                reason=state.problem,
            )
        self._problem_said = state.problem
        if runner_alive(self._run_dir):
            if wanted.gpus:
                self._say("MPS daemons adopted", wanted)
        elif not wanted.gpus and not state.gpus:
            return  # nothing to run, and nothing to put back
        elif self._spawn:
            if self._child is None and runtime.monotonic() >= self._not_before:
                self._start()
        else:
            self._say("waiting for the MPS daemons of another process", wanted)

    def wait(self, uuids: Sequence[str], under_mps: bool, within_s: float = math.inf) -> None:
        """Returns once GPUs are as a container needs them.

        The kubelet tries one again that was refused since too many wait, and counts no restart.

        Args:
            under_mps: their daemon answers; else they are as if there were no MPS.
            within_s: how long at most, where that is less than the time that a container waits.

        Raises:
            MpsError: they are not in time, or too many others wait.
        """
        if not under_mps and not self._is_ever_under_mps(uuids):
            return
        if not self._waiting.acquire(timeout=_TURN_S):
            raise MpsError(
                f"{MOST_WAITING} other containers wait for MPS of their GPU, and no more may at a "
                "time; the kubelet tries this one again"
            )
        try:
            timeout_s = max(0.0, min(self._timeout_s, within_s))
            deadline = runtime.monotonic() + timeout_s
            for uuid in uuids:
                self._wait_for_one(uuid, under_mps, deadline, timeout_s)
        finally:
            self._waiting.release()

    def states(self) -> Mapping[str, GpuMps]:
        """Returns how MPS is on each GPU, by UUID."""
        return self._state().gpus

    # ---- what is wanted ----------------------------------------------------------------------

    def _want(self) -> Wanted:
        """Writes what is wanted, if that is new; returns it."""
        with self._lock:
            gpus, root = self._demand.mps_gpus(), self._root()
            try:
                before = read_wanted(self._run_dir)
            except MpsError as error:
                event(logging.WARNING, error.message)
                before = None
            if before is not None and (before.gpus, before.root) == (gpus, root):
                return before
            wanted = Wanted(new_token(), gpus, root)
            if gpus or before is not None or mps_directory(self._run_dir).is_dir():
                write_wanted(self._run_dir, wanted)
            return wanted

    def _wait_for_one(self, uuid: str, under_mps: bool, deadline: float, timeout_s: float) -> None:
        while (problem := self._problem(uuid, under_mps, deadline)) is not None:
            if runtime.monotonic() >= deadline:
                what = (
                    f"the MPS daemon of GPU {uuid} is not ready"
                    if under_mps
                    else f"GPU {uuid}, which its container needs without MPS, is not free of it"
                )
                raise MpsError(
                    f"{what} after {timeout_s:.0f} s: {problem}",
                    hint=f"look into {self._log_path()}",
                )
            runtime.sleep(_POLL_S)

    def _is_ever_under_mps(self, uuids: Sequence[str]) -> bool:
        """Returns whether a GPU is under MPS now, or was to be at the last look."""
        try:
            wanted = read_wanted(self._run_dir)
        except MpsError:
            return True
        known = {*self._state().gpus, *(wanted.gpus if wanted else self._demand.mps_gpus())}
        return not known.isdisjoint(uuids)

    def _problem(self, uuid: str, under_mps: bool, deadline: float) -> str | None:
        """Returns why a GPU is not yet as a container needs it, None where it is.

        Args:
            deadline: when the container is refused, of the monotonic clock.

        Raises:
            MpsError: it will not be soon.
        """
        wanted = self._want()
        if (uuid in wanted.gpus) != under_mps:
            return "another container of its pod needs it otherwise"
        state = self._state()
        now = state.gpus.get(uuid)
        if not runner_alive(self._run_dir):
            left_s = max(_LEAST_ASK_S, deadline - runtime.monotonic())
            if under_mps and is_ready(
                self._run_dir, uuid, left_s, lambda: runner_alive(self._run_dir)
            ):
                return None
            if under_mps and state.problem:  # why the last one ended; it is tried again
                raise MpsError(state.problem, hint=f"look into {self._log_path()}")
            if under_mps:
                return "no runner lives"
            return None if now is None else "no runner lives that could end its daemon"
        if state.token != wanted.token:
            return "the runner has not read yet what is wanted"
        if not under_mps:
            return None if now is None else f"its daemon is {now.phase}"
        if now is None:
            return "the runner does not know it"
        if now.phase == FAILED:
            raise MpsError(now.reason, hint=f"look into {self._log_path()}")
        return None if now.phase == READY else f"it is {now.phase}, {now.reason or 'not yet up'}"

    def _state(self) -> MpsState:
        try:
            return read_state(self._run_dir) or MpsState()
        except MpsError as error:
            return MpsState(problem=error.message)

    # ---- the runner --------------------------------------------------------------------------

    def _reap(self) -> None:
        """Collects the process that brought the runner up; it ends at once where all is well."""
        if self._child is None or self._child.poll() is None:
            return
        if self._child.returncode != 0:
            event(
                logging.ERROR,
                "the MPS runner cannot be started",
                status=self._child.returncode,
                log=self._log_path(),
            )
        self._child = None
        self._not_before = runtime.monotonic() + _RETRY_AFTER_S

    def _start(self) -> None:
        path = self._log_path()
        state = [] if self._state_dir is None else ["--state-dir", str(self._state_dir)]
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(path, "ab") as output:
                self._child = subprocess.Popen(
                    [sys.executable, "-m", "deviceplugin.mps", "--config", str(self._config),
                     "--run-dir", str(self._run_dir), *state, "--detach"],
                    stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                    start_new_session=True,
                )  # fmt: skip
        except OSError as error:
            raise MpsError(f"the MPS runner cannot be started: {error}") from None
        event(logging.INFO, "MPS runner started", log=path)

    def _log_path(self) -> Path:
        return lock_path(self._run_dir).with_name("runner.log")

    def _say(self, sentence: str, wanted: Wanted) -> None:
        if sentence != self._said:
            event(logging.INFO, sentence, gpus=",".join(wanted.gpus))
        self._said = sentence
