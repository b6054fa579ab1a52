"""Forged books: what a `usage` may be made to say."""

import contextlib
import os
import random
import struct
import time
from collections.abc import Iterator

from .place import LIMITS, RING, USAGE

DEVICE_AT, _DEVICE_BYTES = 256, 256  # of the first device, behind the header
_HI_SLOT_AT = 128
_DEMAND_AT = 64  # virtual time, busy until, demand and yielded window of a device
_ALL = (1 << 64) - 1


def write(image: bytes, at: int = 0) -> None:
    descriptor = os.open(USAGE, os.O_RDWR)
    with contextlib.suppress(OSError):
        os.pwrite(descriptor, image, at)
    os.close(descriptor)


def _read() -> bytes:
    with open(USAGE, "rb") as file:
        return file.read()


def _again(image: bytes, at: int = 0) -> Iterator[None]:
    while True:
        write(image, at)
        yield


def zeroed() -> Iterator[None]:
    yield from _again(bytes(len(_read())))


def doubled() -> Iterator[None]:
    yield from _again(_read() * 2)


def of_another_layout() -> Iterator[None]:
    image = bytearray(_read())
    while True:
        for at in range(8, 64, 4):
            changed = image.copy()
            changed[at : at + 4] = struct.pack("<I", struct.unpack_from("<I", image, at)[0] + 1)
            write(bytes(changed))
            yield


def of_another_tenant() -> Iterator[None]:
    """The allocation's id is another's, and what should be a book is the `limits`."""
    with open(LIMITS, "rb") as file:
        limits = file.read()
    image = bytearray(_read())
    while True:
        write(limits)
        yield
        image[64:128] = b"000000000000".ljust(64, b"\0")
        write(bytes(image))
        yield


def of_noise() -> Iterator[None]:
    chance, size = random.Random(1), len(_read())
    while True:
        write(chance.randbytes(size))
        yield
        write(chance.randbytes(size - 256), 256)
        yield


def with_all_bits() -> Iterator[None]:
    yield from _again(b"\xff" * (len(_read()) - 256), 256)


def with_all_slots() -> Iterator[None]:
    """Each slot is of a process that is said to live."""
    image = _read()
    body = struct.pack("<Q", 3) * ((len(image) - 256) // 8)
    while True:
        write(struct.pack("<I", 0xFFFFFFFF), _HI_SLOT_AT)
        write(body, 256)
        yield


def forged_demand() -> Iterator[None]:
    """Wants the GPU all the time, and says that its work will never end."""
    ring = os.open(RING, os.O_RDWR | os.O_NONBLOCK)
    while True:
        now_ns = time.monotonic_ns()
        for demand in (now_ns, _ALL, now_ns + (1 << 40), 0):
            write(struct.pack("<QQQQ", _ALL, _ALL, demand, 0), DEVICE_AT + _DEMAND_AT)
            with contextlib.suppress(BlockingIOError):
                os.write(ring, b"!")
        yield
