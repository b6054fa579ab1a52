"""Locks: flock, POSIX and OFD, on whole files and on single bytes, of live and stopped programs."""

import contextlib
import fcntl
import os
import signal
from collections.abc import Iterator

from .place import LIMITS, USAGE, attempt, lock_words, open_all

_OFD_SETLK, _OFD_SETLKW = 37, 38  # linux/fcntl.h; Python 3.11 has no name for the first
_COUNT = 4000


def _lock(descriptor: int) -> None:
    for name, kind in (("exclusive", fcntl.LOCK_EX), ("shared", fcntl.LOCK_SH)):
        attempt(f"flock {name}", fcntl.flock, descriptor, kind | fcntl.LOCK_NB)
    for kind in (fcntl.F_WRLCK, fcntl.F_RDLCK):
        attempt("posix", fcntl.fcntl, descriptor, fcntl.F_SETLK, lock_words(kind))
        attempt("ofd", fcntl.fcntl, descriptor, _OFD_SETLK, lock_words(kind))


def of_all_kinds() -> Iterator[None]:
    for flags in (os.O_RDONLY, os.O_RDWR):
        for descriptor in open_all(flags):
            _lock(descriptor)
    yield


def thousands() -> Iterator[None]:
    """Every second byte, where the shim's own locks are, too."""
    descriptors = [os.open(USAGE, os.O_RDWR) for _ in range(2)]
    for at in range(0, 2 * _COUNT, 2):
        words = lock_words(fcntl.F_WRLCK, (1 << 62) + at, 1)
        attempt("far", fcntl.fcntl, descriptors[0], _OFD_SETLK, words)
        attempt("near", fcntl.fcntl, descriptors[1], _OFD_SETLK, lock_words(fcntl.F_WRLCK, at, 1))
    yield


def of_a_stopped_process() -> Iterator[None]:
    """A child takes all locks of the shared book and stops itself."""
    child = os.fork()
    if child == 0:
        for descriptor in open_all(os.O_RDWR) + open_all():
            _lock(descriptor)
        os.kill(os.getpid(), signal.SIGSTOP)
        os._exit(0)
    os.waitpid(child, os.WUNTRACED)
    yield


def of_device_nodes() -> Iterator[None]:
    for name in ("null", "zero", "full", "random", "tty"):
        for flags in (os.O_RDWR, os.O_RDONLY):
            descriptor = attempt(f"open {name}", os.open, f"/dev/{name}", flags)
            if descriptor is not None:
                _lock(descriptor)
    yield


def that_wait_for_each_other() -> Iterator[None]:
    """Children wait for each other's bytes, without end."""
    for turn in range(16):
        if os.fork() == 0:
            descriptor = os.open(
                USAGE if turn % 2 else LIMITS, os.O_RDWR if turn % 2 else os.O_RDONLY
            )
            kind = fcntl.F_WRLCK if turn % 2 else fcntl.F_RDLCK
            for at in (turn, (turn + 1) % 16):
                with contextlib.suppress(OSError):
                    fcntl.fcntl(descriptor, _OFD_SETLKW, lock_words(kind, at, 1))
            signal.pause()
    yield
