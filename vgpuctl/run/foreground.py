"""Runs one command in the foreground as if the shell had started it.

The command stays in our process group, so the terminal reaches it directly: what the terminal
sends (Ctrl-C, Ctrl-\\, Ctrl-Z, a hang-up) goes to the whole group and is not sent on a second
time; what another process sends to us alone is passed on. ``sigwaitinfo`` tells the two apart by
``si_code``. All watched signals are blocked and taken one by one, so none can interrupt the
clean-up that follows. A stop stops us too, so that the shell sees the job as stopped.

Work that has to go on meanwhile (`SideWork`) is done between signals in the same thread, and put
aside while we are stopped.

If we are killed, the kernel kills the command (PR_SET_PDEATHSIG). Its own children are its
business, as they are the shell's.
"""

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from ..command_errors import CommandNotExecutableError, CommandNotFoundError

_PR_SET_PDEATHSIG = 1
_SI_KERNEL = 0x80  # si_code of what the terminal driver sends
_STATUS_SIGNAL_BASE = 128

_PASSED_ON = frozenset(
    {
        signal.SIGINT,
        signal.SIGTERM,
        signal.SIGHUP,
        signal.SIGQUIT,
        signal.SIGUSR1,
        signal.SIGUSR2,
        signal.SIGTSTP,
        signal.SIGCONT,
    }
)
_WATCHED = _PASSED_ON | {signal.SIGCHLD}


class SideWork(Protocol):
    """Work that goes on while the command runs; neither call may block."""

    def look(self) -> object:
        """Does what is due; called again and again."""

    def stop(self) -> None:
        """Puts it aside until the next `look`."""


@contextlib.contextmanager
def signals_held() -> Iterator[None]:
    """Keeps the watched signals from acting until the context ends.

    Enter it before the first thing is made that must be cleaned up. What arrives before the
    command runs waits and is passed on to it; what arrives after its end is dropped.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # inherited SIG_IGN would reap behind our back
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
    try:
        yield
    finally:
        while signal.sigtimedwait(_WATCHED, 0) is not None:
            pass
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def require_command(command: Sequence[str], search_path: str) -> None:
    """Checks that a command can be started, before anything is made for it.

    Args:
        command: its words.
        search_path: PATH as the command will see it.

    Raises:
        CommandNotFoundError: no such file.
        CommandNotExecutableError: it may not be executed.
    """
    name = command[0]
    if shutil.which(name, path=search_path):
        return
    if "/" not in name:
        found = shutil.which(name, mode=os.F_OK, path=search_path)
        if found is None:
            raise CommandNotFoundError(f"command {name!r} was not found on PATH")
        name = found
    if os.path.isdir(name):
        raise CommandNotExecutableError(f"command {name!r} is a directory")
    if not os.path.exists(name):
        raise CommandNotFoundError(f"command {name!r} was not found")
    raise CommandNotExecutableError(f"command {name!r} may not be executed: permission denied")


def run_in_foreground(
    command: Sequence[str],
    environment: Mapping[str, str],
    side_work: SideWork | None = None,
    every_s: float = 1.0,
) -> int:
    """Runs a command to its end; call it within `signals_held`.

    Args:
        command: its words; looked up on the PATH of ``environment``.
        environment: all of what it sees.
        side_work: what to do meanwhile; its last `stop` is the caller's.
        every_s: seconds between two calls of its `look`.

    Returns:
        Its exit status, 128 + n where signal n ended it.

    Raises:
        CommandNotFoundError: no such file, or its interpreter is missing.
        CommandNotExecutableError: the kernel refuses to run it.
    """
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    parent = os.getpid()

    def become_the_command() -> None:
        # Runs between fork and exec. The parent may have died before prctl took hold.
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(_STATUS_SIGNAL_BASE + signal.SIGKILL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _WATCHED)

    try:
        # close_fds would take away what the caller redirected; our own are closed by exec.
        process = subprocess.Popen(
            command, env=environment, preexec_fn=become_the_command, close_fds=False
        )
    except FileNotFoundError as error:
        raise CommandNotFoundError(
            f"command {command[0]!r} was not found: {error.strerror}"
        ) from None
    except OSError as error:
        raise CommandNotExecutableError(
            f"command {command[0]!r} cannot be executed: {error.strerror}"
        ) from None
    status = _wait_and_pass_on(process, side_work, every_s)
    return status if status >= 0 else _STATUS_SIGNAL_BASE - status


def _wait_and_pass_on(
    process: subprocess.Popen[bytes], side_work: SideWork | None, every_s: float
) -> int:
    due_s = time.monotonic()
    while True:
        # Asked before waiting: the command's SIGCHLD may have been taken with the last signal.
        status = process.poll()
        if status is not None:
            return status
        received: signal.struct_siginfo | None
        if side_work is None:
            received = signal.sigwaitinfo(_WATCHED)
        else:
            now_s = time.monotonic()
            if now_s >= due_s:
                side_work.look()
                due_s = now_s + every_s
            received = signal.sigtimedwait(_WATCHED, max(0.0, due_s - time.monotonic()))
        if received is None or received.si_signo == signal.SIGCHLD:
            continue
        if received.si_code != _SI_KERNEL:
            process.send_signal(received.si_signo)
        if received.si_signo == signal.SIGTSTP:
            if side_work is not None:
                side_work.stop()  # others must not wait for one who is stopped
                due_s = 0.0
            _stop_ourselves()


def _stop_ourselves() -> None:
    """Takes the stop we held back; returns when we are continued (SIGCONT is then pending)."""
    os.kill(os.getpid(), signal.SIGTSTP)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTSTP})
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTSTP})
