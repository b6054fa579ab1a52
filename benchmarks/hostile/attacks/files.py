"""What can be done to files by name and by descriptor: sizes, attributes, names, watches."""

import contextlib
import ctypes
import fcntl
import os
import struct
from collections.abc import Iterator

from .place import LIMITS, PRELOAD, RING, USAGE, attempt, libc, library, mounted, open_all, system

_KEEP_SIZE, _PUNCH_HOLE, _ZERO_RANGE = 1, 2, 16
_HUGE_BYTES = 1 << 40
_FILL_BYTES = 1 << 20
_NOBODY = 65534
_SETFLAGS = 0x40086602  # linux/fs.h
_libc64 = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
libc.fallocate.argtypes = _libc64


def truncate() -> Iterator[None]:
    while True:
        for size in (0, 100, _HUGE_BYTES, 4096):
            attempt(f"truncate to {size}", os.truncate, USAGE, size)
        yield


def fill() -> Iterator[None]:
    descriptor = os.open(USAGE, os.O_RDWR | os.O_APPEND)
    block = bytes(_FILL_BYTES)
    while True:
        while attempt("fill", os.write, descriptor, block):
            pass
        yield


def reserve_beyond_the_end() -> Iterator[None]:
    descriptor = os.open(USAGE, os.O_RDWR)
    while True:
        for at in range(512):
            where = (at + 1) << 30
            system("reserve", "fallocate", descriptor, _KEEP_SIZE, where, _FILL_BYTES)
        yield


def punch() -> Iterator[None]:
    descriptor = os.open(USAGE, os.O_RDWR)
    while True:
        size = os.fstat(descriptor).st_size
        system("punch", "fallocate", descriptor, _KEEP_SIZE | _PUNCH_HOLE, 0, size or 1)
        system("zero", "fallocate", descriptor, _ZERO_RANGE, 0, size or 1)
        yield


def attributes() -> Iterator[None]:
    names = (
        "user.a",
        "trusted.a",
        "security.selinux",
        "security.capability",
        "system.posix_acl_access",
    )
    while True:
        for path in mounted():
            for name in names:
                for size in (1, 65536):
                    attempt(f"{name} of {path}", os.setxattr, path, name, bytes(size))
        yield


def modes_and_owners() -> Iterator[None]:
    while True:
        for path in mounted():
            for mode in (0o7777, 0):
                attempt(f"chmod {path}", os.chmod, path, mode)
            attempt(f"chown {path}", os.chown, path, _NOBODY, _NOBODY)
            attempt(f"utime {path}", os.utime, path, (0, 1 << 33))
        yield


def names() -> Iterator[None]:
    """Removes, renames and links what is mounted, and the directories above."""
    for path in [LIMITS, USAGE, RING, PRELOAD, library()]:
        attempt(f"unlink {path}", os.unlink, path)
        attempt(f"rename {path}", os.rename, path, f"{path}.away")
        attempt(f"link {path}", os.link, path, f"{path}.too")
    for directory in ("/etc", "/run/vgpu", "/run"):
        attempt(f"rename {directory}", os.rename, directory, f"{directory}.away")
        attempt(f"link {directory}", os.symlink, "/proc/1/root", directory)
    yield


def run_as_program() -> Iterator[None]:
    attempt("chmod", os.chmod, USAGE, 0o777)
    with contextlib.suppress(OSError), open(USAGE, "r+b") as file:
        file.write(b"#!/bin/sleep 1000\n")
    while True:
        child = os.fork()
        if child == 0:
            with contextlib.suppress(OSError):
                os.execv(USAGE, [USAGE])  # noqa: S606 - what it is
            os._exit(0)
        os.waitpid(child, 0)
        yield


def inode_flags() -> Iterator[None]:
    while True:
        for descriptor in open_all() + open_all(os.O_RDWR):
            for flag in (0x10, 0x20, 0x40, 0x80):  # immutable, append only, no dump, no atime
                attempt(
                    f"flag {flag:#x}", fcntl.ioctl, descriptor, _SETFLAGS, struct.pack("l", flag)
                )
            os.close(descriptor)
        yield


def watch_all() -> Iterator[None]:
    """Watches everything, and reads nothing of what it is told."""
    instances: list[int] = []
    while (made := system("instance", "inotify_init1", 0)) >= 0 and len(instances) < 128:
        instances.append(made)
        for path in [*mounted(), "/run/vgpu", "/dev/null"]:
            system(f"watch {path}", "inotify_add_watch", made, path.encode(), 0xFFF)
    descriptor = os.open(USAGE, os.O_RDWR)
    while True:
        for _ in range(100):
            os.pwrite(descriptor, b"x", 4095)
            os.close(os.open(LIMITS, os.O_RDONLY))
        yield


def sync_without_end() -> Iterator[None]:
    descriptor = os.open(USAGE, os.O_RDWR)
    while True:
        os.pwrite(descriptor, b"x", 4095)
        os.fsync(descriptor)
        os.sync()
        yield
