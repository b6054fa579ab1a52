"""Keeps the agent's process small and its answers prompt.

`without_thread_caches`, `prepare` and `settle` are called first thing, in this order, by `__main__`
alone; `Tidying` by the agent's loop.

Measured with ``python -m benchmarks run allocate``; each line says what it is for.
"""

import ctypes
import gc
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8  # <malloc.h>
_LARGE_BYTES = 128 << 10
#: How long a thread computes while another waits; Python's own 5 ms is most of an Allocate's time.
_SWITCH_INTERVAL_S = 0.0005
#: "Tunables" in the manual of the GNU C library; other libraries pay no heed.
_TUNABLES, _NO_THREAD_CACHES = "GLIBC_TUNABLES", "glibc.malloc.tcache_count=0"
_TUNABLES_BEFORE = "VGPU_TUNABLES_BEFORE"


def without_thread_caches() -> None:
    """Starts this program again with what can be said to glibc at a program's start only.

    Each of gRPC's two dozen threads keeps freed pieces of every size for itself, strewn over the
    heap, where they hold its pages: 2 MiB, and more for hours as containers come and go. The
    variable is taken back at once, so no child inherits it. An admin's own choice stands.
    """
    before = os.environ.pop(_TUNABLES_BEFORE, None)
    if before is not None:
        _set_tunables(before)
        return
    given = os.environ.get(_TUNABLES, "")
    if "glibc.malloc.tcache_count=" in given:
        return
    os.environ[_TUNABLES_BEFORE] = given
    _set_tunables(":".join(filter(None, (given, _NO_THREAD_CACHES))))
    with suppress(OSError):
        os.execv(sys.executable, sys.orig_argv)
    del os.environ[_TUNABLES_BEFORE]
    _set_tunables(given)


def _set_tunables(value: str) -> None:
    if value:
        os.environ[_TUNABLES] = value
    else:
        os.environ.pop(_TUNABLES, None)


def prepare() -> None:
    """Sets the process up; before other threads begin and before the large imports."""
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # another libc than glibc has none
    if mallopt is not None:
        # gRPC has a dozen threads; with an arena each, what one frees no other can use.
        mallopt(_M_ARENA_MAX, 1)
        # Set, they stay: glibc would raise them to the largest message that ever came.
        mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _LARGE_BYTES)
    with _missing("ssl", "_hashlib"):
        # Both come with OpenSSL, 5 MiB, and can do without: nobody here speaks TLS through
        # asyncio (gRPC imports it), and CPython has hashes of its own. Who needs ssl imports it.
        import asyncio  # noqa: F401
        import hashlib  # noqa: F401


def settle() -> None:
    """Takes all that was imported out of the garbage collector's sight; after the imports.

    A full collection looks at a quarter of a million objects otherwise, in the midst of an answer.
    """
    gc.collect()
    gc.freeze()


class Tidying:
    """Gives memory of containers that have ended back to the system; an idle agent does nothing.

    What was freed stays with Python's and the C library's allocators, a part for each container.
    """

    def __init__(self, ended: Callable[[], int]) -> None:
        """Begins with what is there now.

        Args:
            ended: how many containers have ended in all.
        """
        self._ended, self._done = ended, ended()

    def look(self) -> None:
        """Tidies up if containers have ended since the last time."""
        ended = self._ended()
        if ended == self._done:
            return
        self._done = ended
        gc.collect()
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)


@contextmanager
def _missing(*names: str) -> Iterator[None]:
    """Lets modules that are not imported yet seem not to exist."""
    hidden = [name for name in names if name not in sys.modules]
    for name in hidden:
        sys.modules[name] = None  # type: ignore[assignment]  # import's own way to say: there is none
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]
