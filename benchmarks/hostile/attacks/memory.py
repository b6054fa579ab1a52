"""Maps of the shared files, and races with their sizes."""

import contextlib
import mmap
import os
import threading
from collections.abc import Iterator

from .place import LIMITS, USAGE, attempt, system

_BIG = 4 << 20


def cut_off_under_a_map() -> Iterator[None]:
    """A child writes by its map while the file is cut off: its own bus error, and nobody else's."""
    while True:
        child = os.fork()
        if child == 0:
            descriptor = os.open(USAGE, os.O_RDWR)
            os.truncate(USAGE, 1 << 16)
            shared = mmap.mmap(descriptor, 1 << 16)
            os.truncate(USAGE, 0)
            shared[4096] = 1
            os._exit(0)
        os.waitpid(child, 0)
        yield


def maps_come_and_go() -> Iterator[None]:
    usage, limits = os.open(USAGE, os.O_RDWR), os.open(LIMITS, os.O_RDONLY)
    while True:
        for _ in range(50):
            with contextlib.suppress(ValueError, OSError):
                size = os.fstat(usage).st_size
                with (
                    mmap.mmap(usage, size) as shared,
                    mmap.mmap(limits, 4096, prot=mmap.PROT_READ),
                ):
                    shared[:4096] = bytes(4096)
                    shared.madvise(mmap.MADV_DONTNEED)
                    shared.madvise(9)  # MADV_REMOVE
        yield


def write_from_moving_memory() -> Iterator[None]:
    """Keeps the file's inode locked for as long as its own page faults take."""
    descriptor = os.open(USAGE, os.O_RDWR)

    def write() -> None:
        while True:
            with mmap.mmap(-1, _BIG) as fresh, contextlib.suppress(OSError):
                os.pwrite(descriptor, fresh, 0)
                os.ftruncate(descriptor, 4096)

    threading.Thread(target=write, daemon=True).start()
    while True:
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
        yield


def write_limits() -> Iterator[None]:
    attempt("open for writing", os.open, LIMITS, os.O_RDWR)
    descriptor = os.open(LIMITS, os.O_RDONLY)
    attempt("reopen", os.open, f"/proc/self/fd/{descriptor}", os.O_RDWR)
    attempt("truncate", os.truncate, LIMITS, 0)
    with contextlib.suppress(OSError, ValueError):
        mmap.mmap(descriptor, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    system("protect", "mprotect", 0, 4096, 3)
    yield
