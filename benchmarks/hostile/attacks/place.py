"""What a container finds of its slice, and how an attack asks the kernel for something."""

import ctypes
import errno
import glob
import os
import struct
from collections.abc import Callable
from typing import Any

LIMITS, USAGE, RING = "/run/vgpu/limits", "/run/vgpu/usage", "/run/vgpu/ring"
PRELOAD = "/etc/ld.so.preload"
FLOCK = struct.Struct("hhxxxxqqixxxx")
libc = ctypes.CDLL(None, use_errno=True)

#: How each thing that was tried ended the last time: ``ok``, or the name of the error.
outcomes: dict[str, str] = {}


def library() -> str:
    """Returns the path of the shim."""
    return glob.glob("/run/vgpu/lib/*/libvgpu.so")[0]


def mounted() -> list[str]:
    """Returns all files of the slice."""
    return [LIMITS, USAGE, RING, PRELOAD, library()]


def attempt(what: str, call: Callable[..., Any], *arguments: Any) -> Any:
    """Tries something, and notes how it ended; returns None where it was refused."""
    try:
        result = call(*arguments)
    except OSError as error:
        outcomes[what] = errno.errorcode.get(error.errno or 0, "?")
        return None
    outcomes[what] = "ok"
    return result


def system(what: str, name: str, *arguments: Any) -> int:
    """Calls a function of libc that returns -1 on failure, and notes how it ended."""
    result = int(getattr(libc, name)(*arguments))
    outcomes[what] = errno.errorcode.get(ctypes.get_errno(), "?") if result < 0 else "ok"
    return result


def lock_words(kind: int, start: int = 0, length: int = 0) -> bytes:
    """Returns a lock as fcntl takes it."""
    return FLOCK.pack(kind, os.SEEK_SET, start, length, 0)


def open_all(flags: int = os.O_RDONLY) -> list[int]:
    """Opens what may be opened of the slice's files."""
    opened = (attempt(f"open {p}", os.open, p, flags | os.O_NONBLOCK) for p in mounted())
    return [descriptor for descriptor in opened if descriptor is not None]
