"""Directories and lock files that other users have no business in.

Whoever may open a file can lock it, if only for reading, and so could keep an agent or a run from
starting. So our directories have mode 0700 and our lock files 0600, those of an earlier version or
of the kubelet (which makes them 0755) as soon as they are used again.
"""

import os
import stat
from pathlib import Path

from .errors import VgpuError, naming

#: What the names in a directory of ours begin with, up to the first dot.
_OURS = frozenset({
    "accepted-config", "agent", "allocations", "arbiters", "checkpoint", "events", "learnt-sizes",
    "lib", "lost+found", "mps", "node-label", "owners", "pod-labels", "run-dir", "run-mps",
    "slice-peaks", "spare",
})  # fmt: skip
_ROOT = 0


def close_directory(path: Path) -> bool:
    """Makes a directory that exists this user's alone; returns whether it is.

    One in which there is something else than ours keeps its mode, since others may rely on it.

    Raises:
        VgpuError: it belongs to another user.
        OSError: it cannot be opened or changed.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        seen = os.fstat(descriptor)
        _check_owner(path, seen)
        if not stat.S_IMODE(seen.st_mode) & 0o077:
            return True
        with naming(path):
            if any(name.partition(".")[0] not in _OURS for name in os.listdir(descriptor)):
                return False
            os.fchmod(descriptor, 0o700)
    finally:
        os.close(descriptor)
    return True


def open_lock(path: Path) -> int:
    """Opens a lock file, which no other user can open from now on; makes it where it is missing.

    Raises:
        VgpuError: it belongs to another user.
        OSError: it cannot be opened, or is a link.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    descriptor = os.open(path, flags, 0o600)
    try:
        seen = os.fstat(descriptor)
        _check_owner(path, seen)
        if stat.S_IMODE(seen.st_mode) != 0o600:
            os.fchmod(descriptor, 0o600)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _check_owner(path: Path, seen: os.stat_result) -> None:
    allowed = sorted({os.geteuid(), _ROOT})
    if seen.st_uid not in allowed:
        raise VgpuError(
            f"{path} belongs to user {seen.st_uid}, who could keep others from using it; allowed "
            f"as its owner is {' or '.join(map(str, allowed))}",
            hint=f"chown -R {os.geteuid()} {path}, or name another directory",
        )
