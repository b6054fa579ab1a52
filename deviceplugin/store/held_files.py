"""Files that containers have too, kept open so that none of them can be leased.

Whoever may open a file of its own uid can put a lease on it, and root in a container has the uid of
our files. Then an `open` by anybody else waits until the holder gives way, or until the kernel ends
the lease (``/proc/sys/fs/lease-break-time``, 45 s). The kernel gives no lease on a file that
somebody has open for writing, and no write lease on one that somebody has open at all. So each
slice's `limits` and `usage` are held open for writing from before the container starts, and the
library that all containers load for reading.

While no agent runs, a container may get a lease all the same. `hold` never waits for it: a thread
for that file alone does. It waits inside of `open`, where the kernel refuses the next lease
already; who only tried again and again would find the file leased again and again.

`usage` is the container's to write, so it may grow, shrink or lose blocks: `restore` gives it its
size again, on the file's own thread too, since a container can keep the file's inode locked.

For any thread. The lock here is held for no system call that may wait.
"""

import os
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from deviceplugin import runtime
from libvgpu.errors import RegionBusyError, RegionError, RegionUnknownError
from libvgpu.region_files import (
    LIMITS_MODE,
    USAGE_MODE,
    calls_for,
    open_ours,
    open_shared,
)

#: Of a slice's files that containers have too.
SLICE_FILES = {"limits": LIMITS_MODE, "usage": USAGE_MODE}
#: What a file system may take for a file besides its blocks.
_BESIDES_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class Restored:
    """A file that was given its size again.

    Attributes:
        path: of the file.
        was_bytes: how long it was.
        bytes: how long it is.
        problem: why it could not be, empty where it was.
    """

    path: Path
    was_bytes: int
    bytes: int
    problem: str = ""


class HeldFiles:
    """The files that are held open, by path."""

    def __init__(self) -> None:
        """Holds nothing yet."""
        self._lock = runtime.lock()
        self._open: dict[Path, int] = {}
        self._waiting: set[Path] = set()  # a thread waits for these, or restores them
        self._uncounted: set[Path] = set()  # their file system does not count blocks as asked
        self._is_closed = False

    def hold(self, paths: Iterable[Path]) -> None:
        """Holds files from now on; those that have another inode than before as well.

        One that its container has a lease on is held as soon as that has ended. What is missing or
        may not be opened is left out.

        Args:
            paths: `limits` or `usage` of a slice, for writing; any other file for reading.
        """
        with self._lock:
            for path in paths:
                with suppress(RegionError):
                    self._hold(path)

    @contextmanager
    def writable(self, path: Path) -> Iterator[int]:
        """Gives a descriptor of a `limits` or `usage`, which is held from now on.

        Raises:
            RegionBusyError: its container has a lease on it; it is held as soon as that has ended.
            RegionUnknownError: it was exchanged as it was opened, or nothing is held any more.
            RegionError: it is missing, or may not be opened.
        """
        with self._lock, calls_for(path, "opened again"):
            self._hold(path)
            held = self._open.get(path)
            if held is None:
                why = "the agent ends" if self._is_closed else "it was exchanged meanwhile"
                raise RegionUnknownError(f"{path} cannot be held open: {why}")
            descriptor = os.dup(held)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def is_busy(self, path: Path) -> bool:
        """Returns whether a container keeps a file from being held."""
        with self._lock:
            return path in self._waiting and path not in self._open

    def restore(self, usage: Path, size: int, tell: Callable[[Restored], None]) -> None:
        """Gives a held `usage` its size and blocks again, where its container has changed them.

        Args:
            size: how long it was made.
            tell: is told afterwards, on another thread, where the length was not right.

        Raises:
            RegionError: it cannot be looked at.
        """
        with self._lock:
            descriptor = self._open.get(usage)
            if descriptor is None or usage in self._waiting:
                return
            with calls_for(usage, "opened again"):
                seen = os.fstat(descriptor)
                if seen.st_size == size and (usage in self._uncounted or _has_room(seen, size)):
                    return
                copy = os.dup(descriptor)
            self._waiting.add(usage)
        self._start(lambda: self._restore(usage, copy, seen.st_size, size, tell))

    def keep(self, directories: Collection[Path]) -> None:
        """Lets go of the files of all slices but these, and of what was removed."""
        with self._lock:
            for path, descriptor in list(self._open.items()):
                is_others = path.name in SLICE_FILES and path.parent not in directories
                if is_others or not _is_at(descriptor, path):
                    os.close(self._open.pop(path))
            self._uncounted = {p for p in self._uncounted if p in self._open}

    def let_go(self, directory: Path) -> None:
        """Lets go of the files of one slice."""
        with self._lock:
            for name in SLICE_FILES:
                descriptor = self._open.pop(directory / name, None)
                if descriptor is not None:
                    os.close(descriptor)

    def close(self) -> None:
        """Lets go of everything; nothing is held any more."""
        with self._lock:
            self._is_closed = True
            for descriptor in self._open.values():
                os.close(descriptor)
            self._open.clear()

    def _hold(self, path: Path) -> None:
        descriptor = self._open.get(path)
        if descriptor is not None:
            if _is_at(descriptor, path):
                return
            os.close(self._open.pop(path))
        if path in self._waiting:
            raise RegionBusyError(f"{path} is kept busy by its container")
        try:
            mode = SLICE_FILES.get(path.name)
            descriptor = (
                open_shared(path, os.O_RDONLY) if mode is None else open_ours(str(path), mode)
            )
        except RegionBusyError:
            self._waiting.add(path)
            self._start(lambda: self._wait_for(path))
            raise
        self._keep_open(path, descriptor)

    def _keep_open(self, path: Path, descriptor: int) -> None:
        if self._is_closed or path in self._open or not _is_at(descriptor, path):
            os.close(descriptor)
        else:
            self._open[path] = descriptor

    def _start(self, work: Callable[[], None]) -> None:
        runtime.thread(target=work, name="held file").start()

    def _wait_for(self, path: Path) -> None:
        descriptor, mode = -1, SLICE_FILES.get(path.name)
        with suppress(OSError, RegionError):  # it is tried again
            if mode is None:
                descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            else:
                descriptor = open_ours(str(path), mode, waits=True)
        with self._lock:
            self._waiting.discard(path)
            if descriptor >= 0:
                self._keep_open(path, descriptor)

    def _restore(
        self, usage: Path, descriptor: int, was: int, size: int, tell: Callable[[Restored], None]
    ) -> None:
        problem, is_counted = "", True
        try:
            os.ftruncate(descriptor, size)  # frees what lies beyond its end, too
            os.posix_fallocate(descriptor, 0, size)
            is_counted = _has_room(os.fstat(descriptor), size)
        except OSError as error:
            problem = error.strerror or str(error)
        finally:
            os.close(descriptor)
        with self._lock:
            self._waiting.discard(usage)
            if not is_counted:
                self._uncounted.add(usage)
        if was != size or problem:
            tell(Restored(usage, was, size, problem))


def _has_room(seen: os.stat_result, size: int) -> bool:
    """Returns whether a file has all of its blocks, and none beyond its end."""
    return size <= seen.st_blocks * 512 <= size + _BESIDES_BYTES


def _is_at(descriptor: int, path: Path) -> bool:
    """Returns whether an open file is the one of that name."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except OSError:
        return False
