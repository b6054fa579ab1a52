"""The FIFO by which a tenant rings for its GPU's arbiter."""

import contextlib
import fcntl
import mmap
import os
import signal
import threading
from collections.abc import Iterator

from .place import RING, attempt

_SETPIPE_SZ = 1031
_O_DIRECT = 0o40000


def _open(flags: int = os.O_RDWR) -> int:
    return os.open(RING, flags | os.O_NONBLOCK)


def _write_all(descriptor: int, piece: bytes) -> None:
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(descriptor, piece)


def of_another_size() -> Iterator[None]:
    descriptor = _open()
    while True:
        for size in (1 << 31, 1 << 20, 4096):
            attempt(f"size {size}", fcntl.fcntl, descriptor, _SETPIPE_SZ, size)
            _write_all(descriptor, b"!" * 4096)
        yield


def flood() -> Iterator[None]:
    descriptor = _open()
    while True:
        for _ in range(500):
            with contextlib.suppress(BlockingIOError):
                os.write(descriptor, b"!")
        yield


def open_many() -> Iterator[None]:
    opened = [_open(flags) for _ in range(200) for flags in (os.O_RDONLY, os.O_RDWR)]
    attempt("size", fcntl.fcntl, opened[0], _SETPIPE_SZ, 1 << 20)
    _write_all(opened[1], b"!" * 65536)
    yield


def read_away() -> Iterator[None]:
    descriptor = _open()
    while True:
        with contextlib.suppress(BlockingIOError):
            while os.read(descriptor, 65536):
                pass
        os.write(descriptor, b"!")
        yield


def of_packets() -> Iterator[None]:
    """Each byte takes a page of its own."""
    descriptor = _open()
    attempt("packets", fcntl.fcntl, descriptor, fcntl.F_SETFL, _O_DIRECT | os.O_NONBLOCK)
    attempt("size", fcntl.fcntl, descriptor, _SETPIPE_SZ, 1 << 20)
    while True:
        _write_all(descriptor, b"!")
        yield


def with_signals() -> Iterator[None]:
    signal.signal(signal.SIGIO, signal.SIG_IGN)
    descriptor = _open()
    for owner in (1, -1, os.getppid()):
        attempt(f"owner {owner}", fcntl.fcntl, descriptor, fcntl.F_SETOWN, owner)
    attempt("signal", fcntl.fcntl, descriptor, fcntl.F_SETSIG, signal.SIGKILL)
    attempt("signal", fcntl.fcntl, descriptor, fcntl.F_SETSIG, signal.SIGIO)
    attempt("async", fcntl.fcntl, descriptor, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
    while True:
        _write_all(descriptor, b"!" * 4096)
        yield


def from_memory_that_moves() -> Iterator[None]:
    """Writes from pages that are not there, while forks keep the memory's own lock."""
    ballast = mmap.mmap(-1, 16 << 20)
    ballast.write(b"x" * (16 << 20))
    descriptor = _open()
    is_over = threading.Event()

    def write() -> None:
        while not is_over.is_set():
            with mmap.mmap(-1, 1 << 16) as fresh, contextlib.suppress(BlockingIOError):
                os.writev(descriptor, [fresh] * 8)

    threading.Thread(target=write, daemon=True).start()
    while True:
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
        yield
