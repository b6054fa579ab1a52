"""Processes that are not trusted, or not our children.

Those are followed by pidfd, so an id that is used again is no danger; of a tool's output no more is
taken than was bargained for, since what it talks to may be a container's.
"""

import contextlib
import os
import re
import select
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from libvgpu.errors import MpsError

#: How soon a question that nobody waits for any more is given up.
_GIVE_UP_EVERY_S = 0.3
#: All four user ids of a process.
_USERS = re.compile(rb"^Uid:(.+)$", re.M)


class PidfdProcess:
    """One process, from the moment it was found until `close`."""

    def __init__(self, pid: int) -> None:
        """Takes hold of it.

        Raises:
            MpsError: it is not there.
        """
        self.pid = pid
        try:
            self._fd = os.pidfd_open(pid)
        except OSError as error:
            raise MpsError(f"process {pid} cannot be watched: {error.strerror}") from None

    def fileno(self) -> int:
        """Returns what becomes readable when it ends."""
        return self._fd

    def ended(self, within_s: float = 0.0) -> bool:
        """Returns whether it ends within a time."""
        poller = select.poll()
        poller.register(self._fd, select.POLLIN)
        return bool(poller.poll(within_s * 1000))

    def send(self, number: signal.Signals) -> None:
        """Sends a signal, to it and no other; one that has ended gets none."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            signal.pidfd_send_signal(self._fd, number)

    def close(self) -> None:
        """Lets go of it; collects it if it was our child."""
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, os.WNOHANG)
        os.close(self._fd)


def parent_of(pid: int) -> int:
    """Returns the parent of a process, 0 where it is not there."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return 0
    return int(text.rpartition(b")")[2].split()[1])  # the name before may hold anything


def is_ours(pid: int, entry: str) -> bool:
    """Returns whether a process was started with ``NAME=value``, by our user and with our mounts.

    Any container may start one with that variable, some as root. None has the mounts that we have.
    """
    proc = Path(f"/proc/{pid}")
    try:
        has_our_mounts = (proc / "ns/mnt").stat().st_ino == Path("/proc/self/ns/mnt").stat().st_ino
        users = _USERS.search((proc / "status").read_bytes())
        variables = (proc / "environ").read_bytes().split(b"\0")
    except OSError:
        return False
    is_our_user = users is not None and set(map(int, users[1].split())) == {os.geteuid()}
    return is_our_user and has_our_mounts and entry.encode() in variables


def ask_tool(
    command: Sequence[str],
    text: str,
    env: Mapping[str, str],
    timeout_s: float,
    most_bytes: int,
    is_given_up: Callable[[], bool] = lambda: False,
) -> tuple[int, str, str]:
    """Runs a command with ``text``, which is short, as its input.

    Args:
        is_given_up: asked while it runs; the command is ended once it says yes.

    Returns:
        Its exit status, what it said, and what it said of errors.

    Raises:
        TimeoutError: it did not end in time.
        InterruptedError: it was given up.
        OverflowError: it says more than ``most_bytes``.
        OSError: it cannot be run.
    """
    deadline = time.monotonic() + timeout_s
    said = {"stdout": b"", "stderr": b""}
    with (
        subprocess.Popen(
            command,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as tool,
        selectors.DefaultSelector() as selector,
    ):
        assert tool.stdin is not None and tool.stdout is not None and tool.stderr is not None
        try:
            with contextlib.suppress(BrokenPipeError):
                tool.stdin.write(text.encode())
                tool.stdin.close()
            selector.register(tool.stdout, selectors.EVENT_READ, "stdout")
            selector.register(tool.stderr, selectors.EVENT_READ, "stderr")
            while selector.get_map():
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    raise TimeoutError
                if is_given_up():
                    raise InterruptedError
                for key, _ in selector.select(min(left_s, _GIVE_UP_EVERY_S)):
                    part = os.read(key.fd, most_bytes)
                    said[key.data] += part
                    if not part:
                        selector.unregister(key.fileobj)
                    if len(said[key.data]) > most_bytes:
                        raise OverflowError
            status = tool.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise TimeoutError from None
        finally:
            tool.kill()
    answer, problem = (each.decode(errors="replace").strip() for each in said.values())
    return status, answer, problem
