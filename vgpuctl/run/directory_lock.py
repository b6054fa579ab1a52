"""A lock on a directory of this user, by which runs exclude each other and which ends with them."""

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from libvgpu.closed_files import close_directory
from libvgpu.errors import AllocationRefused, VgpuError, naming

_POLL_S = 0.01


@contextlib.contextmanager
def locked(directory: Path, patience_s: float, what_others_do: str) -> Iterator[None]:
    """Holds the lock until the context ends.

    Args:
        directory: which exists.
        patience_s: for who has the lock.
        what_others_do: with the lock, after "another vgpuctl run has been".

    Raises:
        AllocationRefused: another one has had it for so long, so it is stopped or stuck.
    """
    with contextlib.suppress(VgpuError, OSError):  # else others could have the lock
        close_directory(directory)
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        give_up_s = time.monotonic() + patience_s
        while True:
            try:
                with naming(directory):
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= give_up_s:
                    raise AllocationRefused(
                        f"another vgpuctl run has been {what_others_do} in {directory} for "
                        f"{patience_s:.0f} s",
                        hint="it may be stopped: continue or end it, and try again",
                    ) from None
            time.sleep(_POLL_S)
        yield
    finally:
        os.close(descriptor)
