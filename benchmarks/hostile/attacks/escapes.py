"""Ways out of the container, or into another process of the node."""

import contextlib
import ctypes
import glob
import os
import signal
import stat
from collections.abc import Callable, Iterator

from .place import LIMITS, RING, USAGE, attempt, libc, system

_NEWNS, _NEWUSER, _NEWPID = 0x20000, 0x10000000, 0x20000000
_MS_REMOUNT, _MS_BIND, _MS_REC = 0x20, 0x1000, 0x4000
_TRACEME, _SYSCALL, _ATTACH = 0, 24, 16
libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
libc.mount.argtypes = (
    ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_ulong, ctypes.c_char_p
)  # fmt: skip


def _in_child(work: Callable[[], object]) -> int:
    child = os.fork()
    if child == 0:
        with contextlib.suppress(OSError):
            work()
        os._exit(0)
    return child


def look_through_proc() -> Iterator[None]:
    """Opens whatever others have open, their memory and their roots."""
    while True:
        for process in glob.glob("/proc/[0-9]*"):
            for name in ("mem", "root", "cwd", "exe", "environ", "ns/mnt", "oom_score_adj"):
                found = attempt(f"{name} of another", os.open, f"{process}/{name}", os.O_RDWR)
                if found is not None:
                    os.close(found)
            for path in glob.glob(f"{process}/fd/*"):
                found = attempt("descriptor", os.open, path, os.O_RDWR | os.O_NONBLOCK)
                if found is not None:
                    os.close(found)
        for name in (
            "fs/lease-break-time",
            "fs/pipe-max-size",
            "kernel/core_pattern",
            "vm/drop_caches",
        ):
            attempt(name, os.open, f"/proc/sys/{name}", os.O_WRONLY)
        attempt("sysrq", os.open, "/proc/sysrq-trigger", os.O_WRONLY)
        yield


def _as_own_root() -> None:
    if system("user namespace", "unshare", _NEWUSER | _NEWNS | _NEWPID) != 0:
        return
    for name, text in (("setgroups", "deny"), ("uid_map", "0 0 1"), ("gid_map", "0 0 1")):
        with contextlib.suppress(OSError):
            descriptor = os.open(f"/proc/self/{name}", os.O_WRONLY)
            os.write(descriptor, text.encode())
            os.close(descriptor)
    _remount()
    with contextlib.suppress(OSError):
        os.close(os.open(LIMITS, os.O_RDWR))
        os.truncate(LIMITS, 0)
    signal.pause()


def _remount() -> None:
    flags = _MS_REMOUNT | _MS_BIND
    system("remount", "mount", None, LIMITS.encode(), None, flags, None)
    system("cover", "mount", USAGE.encode(), LIMITS.encode(), None, _MS_BIND, None)
    system("rebind", "mount", b"/", b"/tmp", None, _MS_BIND | _MS_REC, None)
    system("unmount", "umount2", LIMITS.encode(), 2)


def user_namespace() -> Iterator[None]:
    _in_child(_as_own_root)
    yield


def mount_over() -> Iterator[None]:
    _remount()
    system("tmpfs", "mount", b"none", b"/tmp", b"tmpfs", 0, None)
    attempt("write", os.open, LIMITS, os.O_RDWR)
    yield


def change_root() -> Iterator[None]:
    def leave() -> None:
        descriptor = os.open(USAGE, os.O_RDWR)
        os.chroot("/tmp")
        for _ in range(64):
            os.chdir("..")
        os.ftruncate(descriptor, 0)
        signal.pause()

    _in_child(leave)
    yield


def make_nodes() -> Iterator[None]:
    """Nodes of the kernel's memory and of disks, by their numbers."""
    for number, (kind, major, minor) in enumerate(
        [("c", 1, 1), ("c", 1, 4), ("c", 10, 229), ("b", 8, 0)]
    ):
        mode = (stat.S_IFCHR if kind == "c" else stat.S_IFBLK) | 0o666
        attempt(
            f"node {major}:{minor}", os.mknod, f"/tmp/n{number}", mode, os.makedev(major, minor)
        )
    yield


def trace_a_child() -> Iterator[None]:
    """Stops a child in the middle of its writes to the shared files."""

    def write() -> None:
        libc.ptrace(_TRACEME, 0, None, None)
        os.kill(os.getpid(), signal.SIGSTOP)
        ring, usage = os.open(RING, os.O_RDWR | os.O_NONBLOCK), os.open(USAGE, os.O_RDWR)
        while True:
            os.write(ring, b"!")
            os.pwrite(usage, bytes(4096), 4096)

    child = _in_child(write)
    os.waitpid(child, os.WUNTRACED)
    for _ in range(7):  # it stays stopped in one of them
        if system("trace", "ptrace", _SYSCALL, child, None, None) != 0:
            break
        os.waitpid(child, os.WUNTRACED)
    yield


def close_everything() -> Iterator[None]:
    def shut() -> None:
        for path in (USAGE, LIMITS, RING):
            os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        os.closerange(0, 4096)
        signal.pause()

    _in_child(shut)
    yield


def signal_everybody() -> Iterator[None]:
    """To all it sees, which is itself, and to numbers that others have outside."""
    while True:
        for number in range(2, 200):
            if number != os.getpid():
                attempt("signal", os.kill, number, signal.SIGSTOP)
        system("attach", "ptrace", _ATTACH, 1, None, None)
        yield
