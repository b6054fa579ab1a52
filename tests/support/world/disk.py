"""The files of a world's agent: at each change it may be killed, or the call may fail.

The files are real ones. A call of `os` that changes them is a point: another thread may go on
there, the agent may be killed before it, and on a full disk it fails. What a dead agent would still
change fails as well, so the disk is as a killed process leaves it. What the kernel does not do in
one of these calls (writing into mapped memory, `open` of Python's own) is never cut in two.
"""

import errno
import os
from collections.abc import Callable
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
        process: whose changes are points; None while there is none.
        is_full: there is no room.
        points: how many changes were met since it was armed.
    """

    def __init__(self, turns: Turns, patch: pytest.MonkeyPatch) -> None:
        """Sees every change that this process of Python makes from now on."""
        self._turns = turns
        self.process: Process | None = None
        self.is_full = False
        self.points = 0
        self._kill_at: int | None = None
        for name in _CHANGES:
            patch.setattr(os, name, self._point_before(getattr(os, name)))
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
