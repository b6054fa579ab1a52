"""The feature file, which Node Feature Discovery (NFD) makes labels of: a line ``key=value`` each.

It is written under a name that NFD does not read (one that begins with a dot) in the same directory
and then renamed, so NFD sees the old file or the new one. NVIDIA's GPU Feature Discovery writes the
same file: while another program does, ours stands back. Used by the agent's loop alone.
"""

import contextlib
import os
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from deviceplugin import runtime
from libvgpu.errors import VgpuError

from .free_labels import CAPABLE

_OURS = re.compile(rf"^[^=\s]+/{re.escape(CAPABLE)}=", re.M)
#: Another program that labels does so every minute, unless it is told otherwise.
_FRESH_S = 180.0


class FeatureFile:
    """One feature file."""

    def __init__(self, path: Path, clock: Callable[[], float] = runtime.epoch) -> None:
        """Writes nothing yet.

        Args:
            clock: seconds since the epoch, as the times of files.
        """
        self._path, self._clock = path, clock

    def write(self, labels: Mapping[str, str]) -> None:
        """Replaces the file.

        Raises:
            VgpuError: there is no directory, another program writes the file, or a write fails.
        """
        if not self._path.parent.is_dir():
            raise VgpuError(
                f"the directory {self._path.parent} of the feature file does not exist; "
                "is Node Feature Discovery on this node, and is the directory mounted here?"
            )
        if self._is_anothers():
            raise VgpuError(
                f"another program writes {self._path}, probably GPU Feature Discovery; "
                "end it on this node, or set labels.writeTo: none"
            )
        new = self._path.with_name(f".{self._path.name}.new")
        try:
            new.write_text(as_lines(labels))
            new.chmod(0o644)
            os.replace(new, self._path)
        except OSError as error:
            with contextlib.suppress(OSError):
                new.unlink(missing_ok=True)
            raise VgpuError(f"{self._path} cannot be written: {error.strerror}") from None

    def end(self, keep: bool) -> None:
        """Removes the file when the agent ends, as GFD does, unless it is to be kept.

        Raises:
            VgpuError: it cannot be removed.
        """
        if not keep:
            self.remove()

    def remove(self) -> None:
        """Removes the file, if it is ours.

        Raises:
            VgpuError: it cannot be removed.
        """
        try:
            if self._is_ours():
                self._path.unlink()
        except OSError as error:
            raise VgpuError(f"{self._path} cannot be removed: {error.strerror}") from None

    def _is_ours(self) -> bool:
        try:
            return _OURS.search(self._path.read_text(errors="replace")) is not None
        except OSError:
            return False

    def _is_anothers(self) -> bool:
        try:
            age_s = self._clock() - self._path.stat().st_mtime
        except OSError:
            return False
        return abs(age_s) < _FRESH_S and not self._is_ours()


class StandardOutput:
    """Labels on the agent's stdout, as where ``outputFile`` is empty."""

    def write(self, labels: Mapping[str, str]) -> None:
        """Prints the labels."""
        sys.stdout.write(as_lines(labels))
        sys.stdout.flush()

    def end(self, keep: bool) -> None:
        """Does nothing: what is printed stays."""

    def remove(self) -> None:
        """Does nothing."""


def as_lines(labels: Mapping[str, str]) -> str:
    """Returns labels as a feature file has them."""
    return "".join(f"{key}={value}\n" for key, value in sorted(labels.items()))
