"""The files of one container's slice as files: made, opened and locked, whatever stands in them.

Made of plain Python alone, so that whoever has the contents from elsewhere (`region` has them from
C by cffi) makes the very same files. Every file keeps its inode for life.

A container may put a lease on a file that is mounted for it, though it cannot write it: then an
`open` by others waits until the container gives way, 45 s at most. So every file that a container
has too is opened by `open_shared`, which never waits.
"""

import errno
import fcntl
import os
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .errors import RegionBusyError, RegionError, RegionUnknownError

LIMITS_MODE = 0o444  # the container reads it, only the host writes
USAGE_MODE = 0o666  # any user of the container writes
RING_MODE = 0o666  # any user of the container rings
DIRECTORY_MODE = 0o700
_FLOCK = struct.Struct("hhxxxxqqixxxx")
#: A lease of the container's, or (only for a writer) the container runs the file as a program.
_BUSY = frozenset({errno.EAGAIN, errno.ETXTBSY})
#: What the file itself is to blame for; any other error says nothing about it.
_OF_THE_FILE = frozenset({
    errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EISDIR, errno.ENXIO, errno.EACCES, errno.EPERM,
})  # fmt: skip


def make_files(
    directory: Path, limits_image: bytes, usage_head: bytes, usage_bytes: int, device_capacity: int
) -> None:
    """Makes ``directory`` with the files `limits`, `usage`, `ring` and `lock` of one container.

    Args:
        directory: must not exist; its parent must.
        limits_image: the whole of `limits`.
        usage_head: how `usage` begins; zeros follow.
        usage_bytes: how long `usage` is.
        device_capacity: so many devices have a FIFO.

    Raises:
        RegionError: the directory exists, or the disk is full; nothing is left behind then.
    """
    try:
        directory.mkdir(mode=DIRECTORY_MODE)
    except OSError as error:
        raise RegionError(f"{directory} cannot be made: {error.strerror}") from error
    try:
        _write_new(directory / "lock", b"", 0, 0o600)
        _write_new(directory / "usage", usage_head, usage_bytes, USAGE_MODE)
        for index in range(device_capacity):
            make_ring(directory, index)
        _write_new(directory / "limits", limits_image, len(limits_image), LIMITS_MODE)
    except OSError as error:
        for path in directory.iterdir():
            path.unlink()
        directory.rmdir()
        raise RegionError(f"{directory} cannot be filled: {error.strerror}") from error


def _write_new(path: Path, head: bytes, size: int, mode: int) -> None:
    """Makes a file of ``size`` bytes: ``head``, then zeros."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        if size:
            os.posix_fallocate(descriptor, 0, size)  # a full tmpfs fails now, not later
            os.pwrite(descriptor, head, 0)
        os.fchmod(descriptor, mode)  # not open's mode: the umask must not narrow it
    finally:
        os.close(descriptor)


def ring_path(directory: Path, device_index: int = 0) -> Path:
    """Returns where the FIFO of a device is; that of the first where a slice has one for all."""
    if device_index == 0:
        return directory / "ring"
    own = directory / f"ring.{device_index}"
    return own if own.exists() else directory / "ring"


def make_ring(directory: Path, device_index: int = 0) -> None:
    """Makes the FIFO of a device where it is missing; one that is there keeps its inode.

    Raises:
        OSError: it cannot be made, or something that is no FIFO has its name.
    """
    path = f"{directory}/ring" if device_index == 0 else f"{directory}/ring.{device_index}"
    try:
        os.mkfifo(path, 0o600)
    except FileExistsError:
        if not stat.S_ISFIFO(os.lstat(path).st_mode):
            raise
    if stat.S_IMODE(os.lstat(path).st_mode) != RING_MODE:
        os.chmod(path, RING_MODE)  # not mkfifo's mode: the umask must not narrow it


def has_ring(directory: Path) -> bool:
    """Returns whether the slice has a FIFO `ring`."""
    try:
        return stat.S_ISFIFO(os.lstat(directory / "ring").st_mode)
    except OSError:
        return False


def write_lock() -> bytes:
    """Returns a write lock on a whole file, as fcntl takes it."""
    return _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Keeps apart all who change `limits`.

    Raises:
        RegionError: the file `lock` cannot be opened.
    """
    path = f"{directory}/lock"
    with calls_for(path):
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        with calls_for(path, "locked"):
            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLKW, write_lock())
        yield
    finally:
        os.close(descriptor)


def open_shared(path: Path | str, flags: int) -> int:
    """Opens a file that a container has too, without waiting for anybody.

    Args:
        flags: ``O_RDONLY`` or ``O_RDWR``.

    Raises:
        RegionBusyError: its container has a lease on it.
        RegionError: it is missing, a link, or may not be opened.
    """
    with calls_for(path):
        # A FIFO would wait for its other end, and a file for who has a lease on it.
        return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)


@contextmanager
def calls_for(path: Path | str, done: str = "opened") -> Iterator[None]:
    """Has calls for a slice's file raise what their errors mean for it.

    Args:
        done: what they do to the file, as a participle.

    Raises:
        RegionBusyError: its container has a lease on it.
        RegionUnknownError: the error says nothing about the file.
        RegionError: it is missing, a link, or may not be opened.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _BUSY and done == "opened":
            raise RegionBusyError(
                f"{path} cannot be opened now: its container keeps it busy by a lease, which the "
                "kernel ends in less than a minute"
            ) from error
        kind = RegionError if error.errno in _OF_THE_FILE else RegionUnknownError
        raise kind(f"{path} cannot be {done}: {error.strerror}") from error


def open_limits(path: Path | str) -> int:
    """Opens `limits` for reading and writing, and keeps it read-only for everybody else.

    Raises:
        RegionBusyError: its container has a lease on it.
        RegionError: it is missing, or not ours.
    """
    return open_ours(str(path), LIMITS_MODE)


def open_ours(path: str, mode: int, *, waits: bool = False) -> int:
    """Opens a file of a slice for reading and writing; its mode stays.

    Args:
        waits: until the lease that its container has on it has ended.

    Raises:
        RegionBusyError: its container has a lease on it.
        RegionError: it is missing, or not ours.
    """
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | (0 if waits else os.O_NONBLOCK)
    with calls_for(path):
        try:
            return os.open(path, flags)
        except PermissionError:  # an ordinary user's own file has mode 0444 for him too
            os.chmod(path, mode | 0o200)
            try:
                return os.open(path, flags)
            finally:
                os.chmod(path, mode)


def open_for_arbiter(directory: Path, device_index: int) -> tuple[int, int, int]:
    """Opens what an arbiter has of a tenant: its `limits`, its `usage` and its FIFO.

    Raises:
        RegionBusyError: its container has a lease on one of them.
        RegionError: one is missing, or `limits` is not ours; none is left open then.
    """
    owned = [open_limits(directory / "limits")]
    try:
        for path in (directory / "usage", ring_path(directory, device_index)):
            owned.append(open_shared(path, os.O_RDONLY))
    except RegionError:
        for descriptor in owned:
            os.close(descriptor)
        raise
    limits, usage, ring = owned
    return limits, usage, ring
