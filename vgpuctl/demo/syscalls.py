"""The system calls that the container stand-in needs and Python 3.11 does not have.

Everything here raises OSError with what was attempted in place of a file name.
"""

import ctypes
import os
import signal

MS_RDONLY = 0x1
MS_NOSUID = 0x2
MS_NODEV = 0x4
MS_REMOUNT = 0x20
MS_BIND = 0x1000
MS_MOVE = 0x2000
MS_REC = 0x4000
MS_PRIVATE = 0x40000
MNT_DETACH = 0x2
CLONE_NEWNS = 0x00020000
CLONE_NEWIPC = 0x08000000

_SYS_PIVOT_ROOT = 155  # x86-64; glibc has no wrapper
_PR_SET_PDEATHSIG = 1
_PR_CAPBSET_READ = 23
_PR_CAPBSET_DROP = 24
_PR_SET_NO_NEW_PRIVS = 38

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mount.argtypes = (
    ctypes.c_char_p,
    ctypes.c_char_p,
    ctypes.c_char_p,
    ctypes.c_ulong,
    ctypes.c_char_p,
)
_libc.umount2.argtypes = (ctypes.c_char_p, ctypes.c_int)


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)
    return result


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    """Mounts, as mount(2)."""
    _checked(
        _libc.mount(
            source.encode() or None, target.encode(), kind.encode() or None, flags, options.encode()
        ),
        f"mount of {source or kind} on {target}",
    )


def bind(source: str, target: str, read_only: bool = False) -> None:
    """Binds a file or a directory tree; ``target`` must exist."""
    mount(source, target, flags=MS_BIND | MS_REC)
    if read_only:  # the first call ignores the flag
        mount("", target, flags=MS_REMOUNT | MS_BIND | MS_RDONLY)


def unmount(target: str) -> None:
    """Detaches a mount with all below it."""
    _checked(_libc.umount2(target.encode(), MNT_DETACH), f"unmount of {target}")


def unshare(flags: int) -> None:
    """Gives this process namespaces of its own."""
    _checked(_libc.unshare(flags), "unshare")


def pivot_root_here() -> None:
    """Makes the current directory, a mount point, the root of this mount namespace."""
    _checked(_libc.syscall(_SYS_PIVOT_ROOT, b".", b"."), "pivot_root")


def die_with_parent() -> None:
    """Asks for SIGKILL when the parent thread ends.

    A change of credentials clears it, so call it after the last one.
    """
    _checked(_libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "PR_SET_PDEATHSIG")


def no_new_privileges() -> None:
    """Keeps set-user-ID programs from raising this process, for good."""
    _checked(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "PR_SET_NO_NEW_PRIVS")


def drop_capabilities_but(kept: frozenset[int]) -> None:
    """Removes all capabilities but ``kept`` from what this process and its children can ever get.

    They leave the effective set with the next exec.
    """
    number = 0
    while _libc.prctl(_PR_CAPBSET_READ, number, 0, 0, 0) >= 0:
        if number not in kept:
            _checked(_libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0), "PR_CAPBSET_DROP")
        number += 1
