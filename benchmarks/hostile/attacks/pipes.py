"""The pipe directory of an MPS daemon, where its clients write."""

import os
from collections.abc import Iterator

from .place import attempt, outcomes

PIPE = "/run/vgpu/mps"
_FILL_BYTES = 1 << 18
_NAMES_MOST = 50_000


def _fill(descriptor: int) -> Iterator[None]:
    block = bytes(_FILL_BYTES)
    while True:
        while attempt("fill", os.write, descriptor, block):
            pass
        yield


def fill() -> Iterator[None]:
    descriptor = attempt("make", os.open, f"{PIPE}/big", os.O_RDWR | os.O_CREAT, 0o600)
    if descriptor is not None:
        yield from _fill(descriptor)
    yield


def fill_unseen() -> Iterator[None]:
    """Whoever looks at the directory does not find it."""
    descriptor = attempt("make", os.open, f"{PIPE}/big", os.O_RDWR | os.O_CREAT, 0o600)
    if descriptor is not None:
        os.unlink(f"{PIPE}/big")
        yield from _fill(descriptor)
    yield


def fill_by_names() -> Iterator[None]:
    for number in range(_NAMES_MOST):
        attempt("name", os.mkfifo, f"{PIPE}/n{number}")
        if outcomes["name"] not in ("ok", "EEXIST"):
            break
    yield
