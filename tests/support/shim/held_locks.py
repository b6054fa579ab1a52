"""Holding the lock of a slice's files, as whoever changes its limits does."""

import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from libvgpu import region_files

_OFD_SETLK = 37  # linux/fcntl.h; Python 3.11 has no name for it


class HeldLocks:
    """Locks of the files in several directories; `held_locks` takes and returns them."""

    def __init__(self, directories: Iterable[Path]) -> None:
        """Takes each lock.

        Raises:
            BlockingIOError: somebody else has one.
        """
        self._descriptors: list[int] = []
        try:
            for directory in directories:
                self._descriptors.append(os.open(directory / "lock", os.O_RDWR | os.O_CLOEXEC))
                fcntl.fcntl(self._descriptors[-1], _OFD_SETLK, region_files.write_lock())
        except OSError:
            self.release()
            raise

    def is_waited_for(self) -> bool:
        """Returns whether somebody waits for one of them, as the kernel's list says."""
        held = {_name(os.fstat(descriptor)) for descriptor in self._descriptors}
        lines = (line.split() for line in Path("/proc/locks").read_text().splitlines())
        # NUMBER: -> KIND ADVISORY MODE PID DEVICE:INODE START END
        return any(fields[1] == "->" and fields[6] in held for fields in lines)

    def release(self) -> None:
        """Gives all of them back."""
        while self._descriptors:
            os.close(self._descriptors.pop())


def _name(status: os.stat_result) -> str:
    """Returns a file's name in /proc/locks."""
    return f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"


@contextmanager
def held_locks(directories: Iterable[Path]) -> Iterator[HeldLocks]:
    """Holds the locks of the files in directories until the block ends."""
    locks = HeldLocks(directories)
    try:
        yield locks
    finally:
        locks.release()
