"""The files of a world's agent: at each change it may be killed, or the call may fail.

The files are real ones. A call of `os` that changes them is a point: another thread may go on
there, the agent may be killed before it, and on a full disk it fails. What a dead agent would still
change fails as well, so the disk is as a killed process leaves it. What the kernel does not do in
one of these calls (writing into mapped memory, `open` of Python's own) is never cut in two.

After a power cut a file has what was synced last or what was written since, whole, in part, or the
room without the bytes; the names in a directory are those that were synced last, or all of now.
"""

import errno
import os
import random
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from .turns import Killed, Process, Turns

_CHANGES = (
    "chmod", "fchmod", "fdatasync", "fsync", "ftruncate", "remove", "rename", "replace", "rmdir",
    "unlink",
)  # fmt: skip
#: These need room, too.
_GROWS = ("link", "mkdir", "mkfifo", "posix_fallocate", "pwrite", "symlink", "write")
_MAKES = os.O_CREAT | os.O_TRUNC


class AgentDisk:
    """What changes files within one process.

    Attributes:
        process: the one that `arm` is about; None before an agent was started.
        is_full: there is no room.
        points: how many changes were met since it was armed.
        may_lose_power: what is synced is remembered, for `cut_power`.
    """

    def __init__(self, turns: Turns, patch: pytest.MonkeyPatch) -> None:
        """Sees every change that this process of Python makes from now on."""
        self._turns = turns
        self.process: Process | None = None
        self.is_full = False
        self.points = 0
        self.may_lose_power = False
        self._kill_at: int | None = None
        self._durable: dict[int, bytes] = {}  # what was synced last, by inode
        self._names: dict[Path, dict[str, int]] = {}  # the same of directories
        for name in _CHANGES:
            patch.setattr(os, name, self._point_before(getattr(os, name)))
        for name in ("fsync", "fdatasync"):
            patch.setattr(os, name, self._noted_after(getattr(os, name)))
        for name in _GROWS:
            patch.setattr(os, name, self._point_before(getattr(os, name), grows=lambda _: True))
        patch.setattr(
            os,
            "open",
            self._point_before(
                os.open, lambda given: given[1] & _MAKES, lambda given: given[1] & os.O_CREAT
            ),
        )

    def arm(self, kill_at: int | None) -> None:
        """Has the process killed before its next change but so many; None for never."""
        self.points, self._kill_at = 0, kill_at

    def cut_power(self, directory: Path, chance: random.Random) -> None:
        """Leaves of a directory's files what a power cut may leave."""
        assert self.may_lose_power
        now = {each.name: each for each in directory.iterdir() if each.is_file()}
        names: Mapping[str, int] = {name: path.stat().st_ino for name, path in now.items()}
        content = {path.stat().st_ino: path.read_bytes() for path in now.values()}
        synced = self._names.get(directory, {})
        if chance.random() < 0.5:
            names = {name: inode for name, inode in synced.items() if inode in self._durable}
        for path in now.values():
            path.unlink()
        for name, inode in names.items():
            durable = self._durable.get(inode, b"")
            written = content.get(inode, durable)
            room = durable + bytes(max(0, len(written) - len(durable)))
            part = durable + written[len(durable) : (len(durable) + len(written)) // 2]
            left = chance.choice((durable, written, room, part))
            (directory / name).write_bytes(left)
            self._durable[(directory / name).stat().st_ino] = left
        self._names[directory] = {each.name: each.inode() for each in os.scandir(directory)}

    def _noted_after(self, sync: Callable[[int], None]) -> Callable[[int], None]:
        def noted(descriptor: int) -> None:
            sync(descriptor)
            if not self.may_lose_power:
                return
            status = os.fstat(descriptor)
            path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
            if stat.S_ISDIR(status.st_mode):
                found = [each for each in os.scandir(path) if each.is_file()]
                self._names[path] = {each.name: each.inode() for each in found}
            else:
                self._durable[status.st_ino] = path.read_bytes()

        return noted

    def _point_before(
        self,
        call: Callable[..., Any],
        changes: Callable[[Any], Any] = lambda given: True,
        grows: Callable[[Any], Any] = lambda given: False,
    ) -> Callable[..., Any]:
        def change(*given: Any, **named: Any) -> Any:
            turn = self._turns.current
            if turn.process.name == "agent" and changes(given):
                if turn.process.is_dead:
                    raise Killed
                if self.points == self._kill_at and turn.process is self.process:
                    self._turns.kill(turn.process)
                self.points += 1
                self._turns.point("disk")
                if self.is_full and grows(given):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return call(*given, **named)

        return change
