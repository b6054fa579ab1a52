"""An MPS control daemon by its pipe directory: asked, started with its server, told to end.

Nothing here says whose it is or for how long (`mps_server` does). Its directory is this user's own,
so what answers there is believed.
"""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from deviceplugin.mps.control_pipe import READY_COMMAND, TOOL
from deviceplugin.mps.processes import ask_tool
from libvgpu.errors import MpsError

PIPE_VARIABLE = "CUDA_MPS_PIPE_DIRECTORY"
#: In the environment of a daemon that a run has started, with its pipe directory.
MARK = "VGPU_MPS_PIPE"
_ANSWER_S, _START_S, _QUIT_S = 5.0, 20.0, 3
_POLL_S = 0.05
_ANSWER_MOST = 64 << 10
_SAID_MOST = 300


class MpsDaemon:
    """Whoever answers in a pipe directory."""

    def __init__(self, tool: str, pipe: Path, environment: Mapping[str, str]) -> None:
        self._tool, self._pipe = tool, pipe
        plain = {k: v for k, v in environment.items() if not k.startswith("CUDA_MPS_")}
        self._environment = {**plain, PIPE_VARIABLE: str(pipe)}

    def answers(self) -> bool:
        try:
            float(self._ask(READY_COMMAND))
        except (MpsError, ValueError):
            return False
        return True

    def quit(self) -> None:
        """Has it end with its server, whose clients have ended."""
        self._ask(f"quit -t {_QUIT_S}", _QUIT_S + _ANSWER_S)

    def start(self, directory: Path, uuid: str) -> None:
        """Starts it with its server, so that what is in its way shows before the program starts."""
        log = directory / "log"
        shutil.rmtree(self._pipe, ignore_errors=True)
        for each in (self._pipe, log):
            each.mkdir(mode=0o700, exist_ok=True)
        extra = {
            "CUDA_MPS_LOG_DIRECTORY": str(log),
            "CUDA_VISIBLE_DEVICES": uuid,
            MARK: str(self._pipe),
        }
        with open(log / "stderr.log", "ab") as output:
            try:
                child = subprocess.Popen(
                    [self._tool, "-f"],
                    env=self._environment | extra,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,  # it outlives us where others use it, too
                    preexec_fn=_unblock_signals,
                )
            except OSError as error:
                raise MpsError(f"{self._tool} cannot be run: {error.strerror}") from None
        (directory / "pid").write_text(str(child.pid))
        try:
            self._wait(child, log)
            self._ask(f"start_server -uid {os.geteuid()}")
        except MpsError as error:
            raise MpsError(
                f"no MPS server starts on GPU {uuid}, perhaps because another MPS daemon or a "
                f"process has that GPU: {error.message}"
            ) from None
        finally:
            child.returncode = 0  # whoever leaves last sees to its end

    def _wait(self, child: "subprocess.Popen[bytes]", log: Path) -> None:
        give_up_s = time.monotonic() + _START_S
        while not self.answers():
            if child.poll() is not None:
                said = " ".join((log / "stderr.log").read_text(errors="replace").split())
                raise MpsError(f"its daemon ended at once: {said[-_SAID_MOST:] or 'no reason'}")
            if time.monotonic() >= give_up_s:
                raise MpsError(f"its daemon does not answer after {_START_S:.0f} s")
            time.sleep(_POLL_S)

    def _ask(self, command: str, timeout_s: float = _ANSWER_S) -> str:
        try:
            status, answer, problem = ask_tool(
                [self._tool], f"{command}\n", self._environment, timeout_s, _ANSWER_MOST
            )
        except (TimeoutError, OverflowError, OSError) as error:
            raise MpsError(f"{TOOL} does not answer: {error or 'not in time'}") from None
        if status != 0:
            raise MpsError(
                " ".join((problem or answer).split())[:_SAID_MOST] or "it says no reason"
            )
        return answer


def _unblock_signals() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # `foreground` holds ours back
