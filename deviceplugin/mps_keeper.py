"""Sees to it that somebody runs the MPS daemons, and waits for them where a container needs one.

A runner that is there already (its lock is held, or a daemon answers in the pipe directory) is
adopted. Otherwise, unless told not to, the agent starts ``python -m deviceplugin.mps`` detached
from itself: it outlives the agent, and its log is ``<run-dir>/mps/runner.log``.
"""

import logging
import subprocess
import sys
import time
from pathlib import Path

from libvgpu.errors import MpsError

from .log import event
from .mps import lock_path, runner_alive
from .mps_control import is_ready, wait_ready

#: The kubelet gives PreStartContainer 30 s.
_READY_TIMEOUT_S = 25.0
#: A runner that could not do its work is tried again this much later.
_RETRY_AFTER_S = 15.0


class MpsKeeper:
    """The agent's view of the MPS daemons; `look` from one thread, `wait` from any."""

    def __init__(self, config: Path, run_dir: Path, uuids: tuple[str, ...], spawn: bool) -> None:
        """Does nothing yet.

        Args:
            uuids: the GPUs of family mps.
            spawn: whether to start a runner where there is none.
        """
        self._config, self._run_dir, self._uuids, self._spawn = config, run_dir, uuids, spawn
        self._child: subprocess.Popen[bytes] | None = None
        self._said = ""
        self._not_before = 0.0

    def look(self) -> None:
        """Starts a runner if one is needed and none is there."""
        if not self._uuids or (self._child is not None and self._child.poll() is None):
            return
        if self._child is not None:
            event(logging.ERROR, "the MPS runner ended", status=self._child.returncode,
                  log=self._log_path())  # fmt: skip
            self._child = None
            self._not_before = time.monotonic() + _RETRY_AFTER_S
        if runner_alive(self._run_dir) or is_ready(self._run_dir, self._uuids[0]):
            self._say("MPS daemons adopted")
        elif self._spawn:
            if time.monotonic() >= self._not_before:
                self._start()
        else:
            self._say("waiting for the MPS daemons of another process")

    def wait(self, uuid: str) -> None:
        """Returns once the daemon of a GPU answers.

        Raises:
            MpsError: it does not in time.
        """
        wait_ready(self._run_dir, uuid, _READY_TIMEOUT_S)

    def _start(self) -> None:
        path = self._log_path()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(path, "ab") as output:
                self._child = subprocess.Popen(
                    [sys.executable, "-m", "deviceplugin.mps", "--config", str(self._config),
                     "--run-dir", str(self._run_dir)],
                    stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                    start_new_session=True,
                )  # fmt: skip
        except OSError as error:
            raise MpsError(f"the MPS runner cannot be started: {error}") from None
        event(logging.INFO, "MPS runner started", pid=self._child.pid, log=path)

    def _log_path(self) -> Path:
        return lock_path(self._run_dir).with_name("runner.log")

    def _say(self, sentence: str) -> None:
        if sentence != self._said:
            event(logging.INFO, sentence, gpus=",".join(self._uuids))
        self._said = sentence
