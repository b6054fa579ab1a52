"""Ends an agent at a change of its files that is counted, so that a kill is the same each time.

Every call of `os` that changes files is a point. A kill is an exception there that nothing of the
agent catches, and whatever the dead agent would still change, clean-up included, ends as well: the
disk is as a killed process leaves it. What the kernel does not do in one of these calls (writing
into mapped memory) is never cut in two.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

_CHANGES = (
    "chmod", "fchmod", "fdatasync", "fsync", "ftruncate", "link", "mkdir", "mkfifo",
    "posix_fallocate", "pwrite", "remove", "rename", "replace", "rmdir", "symlink", "unlink",
    "write",
)  # fmt: skip
_MAKES = os.O_CREAT | os.O_TRUNC


class Killed(BaseException):
    """The agent was killed here."""


class KillPoints:
    """Counts what changes files `within` the agent, and kills at one of those changes.

    Attributes:
        points: how many were met since it was armed.
        is_dead: the agent was killed.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        """Sees every change that this process makes from now on."""
        self.points, self.is_dead = 0, False
        self._kill_at: int | None = None
        self._is_within = False
        for name in _CHANGES:
            patch.setattr(os, name, self._counted(getattr(os, name)))
        patch.setattr(os, "open", self._counted(os.open, lambda given: given[1] & _MAKES))

    def arm(self, kill_at: int) -> None:
        """Has the agent killed before its next change but so many."""
        self.points, self._kill_at = 0, kill_at

    def revive(self) -> None:
        """Another agent runs from now on, and nobody is to kill it."""
        self.is_dead, self._kill_at = False, None

    @contextmanager
    def within(self, is_agent: bool = True) -> Iterator[None]:
        """Surrounds what the agent does, and what others do meanwhile."""
        before, self._is_within = self._is_within, is_agent
        try:
            yield
        finally:
            self._is_within = before

    def _counted(
        self, call: Callable[..., Any], changes: Callable[[Any], Any] = lambda given: True
    ) -> Callable[..., Any]:
        def change(*given: Any, **named: Any) -> Any:
            if changes(given):
                self._point()
            return call(*given, **named)

        return change

    def _point(self) -> None:
        if not self._is_within:
            return
        self.is_dead = self.is_dead or self.points == self._kill_at
        if self.is_dead:
            raise Killed
        self.points += 1
