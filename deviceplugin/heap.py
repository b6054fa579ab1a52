"""The C library's heap: what is freed goes back to the system."""

import ctypes

_M_TRIM_THRESHOLD, _M_ARENA_MAX = -1, -8  # <malloc.h>
_KEPT_BYTES = 128 << 10  # glibc's own value to begin with


def return_freed_memory() -> None:
    """Has glibc return large pieces of memory when they are freed; call before threads begin.

    Left alone, it raises its threshold to the largest piece that was ever freed, and keeps 65 MiB
    for good after a single request of a million names. And each of gRPC's two dozen threads gets a
    heap that no other may use: 6 MiB more after ten requests that are too long (both in
    test_bad_requests.py).
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # another libc than glibc has none
    if mallopt is not None:
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
        mallopt(_M_ARENA_MAX, 1)
