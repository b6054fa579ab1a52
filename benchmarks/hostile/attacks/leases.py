"""Leases, which have others wait in ``open``."""

import fcntl
import os
import signal
from collections.abc import Iterator

from .place import LIMITS, USAGE, attempt, mounted


def _take(kind: int) -> Iterator[None]:
    signal.signal(signal.SIGIO, signal.SIG_IGN)
    opened = {p: attempt(f"open {p}", os.open, p, os.O_RDONLY | os.O_NONBLOCK) for p in mounted()}
    while True:
        for path, descriptor in opened.items():
            if descriptor is not None:
                attempt(f"lease {path}", fcntl.fcntl, descriptor, fcntl.F_SETLEASE, kind)
        yield


def for_reading() -> Iterator[None]:
    yield from _take(fcntl.F_RDLCK)


def for_writing() -> Iterator[None]:
    yield from _take(fcntl.F_WRLCK)


def directory_signals() -> Iterator[None]:
    """Asks for a signal at each change, by directories and by O_ASYNC."""
    signal.signal(signal.SIGIO, signal.SIG_IGN)
    directory = os.open("/run/vgpu", os.O_RDONLY)
    attempt("notify", fcntl.fcntl, directory, fcntl.F_NOTIFY, 0x8000003F)
    for path in (LIMITS, USAGE):
        descriptor = os.open(path, os.O_RDONLY)
        attempt(f"owner {path}", fcntl.fcntl, descriptor, fcntl.F_SETOWN, 1)
        attempt(f"async {path}", fcntl.fcntl, descriptor, fcntl.F_SETFL, os.O_ASYNC)
    yield
