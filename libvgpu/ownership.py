"""Who owns a slice made by `vgpuctl run`, so that the slice of a killed one is swept.

Next to ``<run-dir>/allocations`` lies ``<run-dir>/owners`` with one empty file per slice. Its
owner holds an exclusive flock on it for as long as it lives; the kernel drops the lock with the
process, however it ends. The owner file is made before the directory of the slice and removed
after it, so whoever gets the lock of an owner file knows that its owner is dead and may remove
both, and a directory of ours without an owner file is a leaving too.

Making, sweeping and looking may happen at once: a lock counts only while the file that was locked
still has its name (`_is_named`), so an owner whose new file a sweeper caught simply makes another.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from libvgpu import allocation_dirs

SOURCE = "run"
_OWNERS = "owners"


def _is_named(descriptor: int, path: Path) -> bool:
    mine = os.fstat(descriptor)
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    return (mine.st_dev, mine.st_ino) == (there.st_dev, there.st_ino)


@contextlib.contextmanager
def owned_directory(run_dir: Path) -> Iterator[tuple[str, Path]]:
    """Gives a new allocation id and the path of its directory, which the caller makes.

    Owner lock and directory are gone when the context ends, and are swept by the next run of
    anyone if this process does not live to that end.
    """
    owners = run_dir / _OWNERS
    for path in (run_dir, owners, run_dir / "allocations"):
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    while True:
        allocation_id = f"run-{os.getpid()}-{os.urandom(4).hex()}"
        owner = owners / allocation_id
        descriptor = os.open(owner, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if _is_named(descriptor, owner):
            break
        os.close(descriptor)  # a sweeper took it for a dead one's between open and lock
    directory = run_dir / "allocations" / allocation_id
    try:
        yield allocation_id, directory
    finally:
        try:
            if directory.exists():
                allocation_dirs.remove(directory)
        finally:
            owner.unlink(missing_ok=True)
            os.close(descriptor)


def is_abandoned(run_dir: Path, allocation_id: str) -> bool:
    """Returns whether the `vgpuctl run` behind an allocation is dead.

    The shared lock taken here for an instant delays an owner that is just starting, no more.
    """
    try:
        descriptor = os.open(run_dir / _OWNERS / allocation_id, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


def sweep(run_dir: Path) -> tuple[str, ...]:
    """Removes what dead `vgpuctl run` left in a run directory; returns their allocation ids.

    Whole and half-made directories alike; never those of the node agent.
    """
    swept = []
    owners = run_dir / _OWNERS
    for owner in sorted(owners.iterdir()) if owners.is_dir() else []:
        try:
            descriptor = os.open(owner, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_named(descriptor, owner):
                directory = run_dir / "allocations" / owner.name
                if directory.exists():
                    allocation_dirs.remove(directory)
                owner.unlink(missing_ok=True)
                swept.append(owner.name)
        except BlockingIOError:
            pass  # its owner lives
        finally:
            os.close(descriptor)
    return tuple(swept)
