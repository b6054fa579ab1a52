"""A file system of its own for a pipe directory, in which a container may do as it likes.

Clients of MPS write in their GPU's pipe directory. What one of them fills there is this file system
and no other, and no link in it is followed (Linux 5.10 and newer; older ones ignore that flag). It
is mounted on the node, so it outlives the runner as the daemon does.
"""

import ctypes
import errno
import logging
import os
from pathlib import Path

from deviceplugin.log import event

SOURCE = "vgpu-mps"
#: A daemon's sockets and FIFOs take no room but inodes.
_OPTIONS = b"mode=0755,size=4m,nr_inodes=4k"
_NOSUID, _NODEV, _NOEXEC, _NOSYMFOLLOW = 0x2, 0x4, 0x8, 0x100
_DETACH = 2


def mount(pipe: Path, run_dir: Path) -> None:
    """Mounts it on a pipe directory that nobody has mounted.

    Where the run directory is no mount of its own, as the chart makes it, nothing is mounted: who
    removes that directory would not know of it.
    """
    if not os.path.ismount(run_dir) or os.path.ismount(pipe):
        return
    flags = _NOSUID | _NODEV | _NOEXEC | _NOSYMFOLLOW
    libc = ctypes.CDLL(None, use_errno=True)
    arguments = (SOURCE.encode(), os.fsencode(pipe), b"tmpfs", ctypes.c_ulong(flags), _OPTIONS)
    if libc.mount(*arguments) != 0:
        event(
            logging.WARNING,
            "the pipe directory of an MPS daemon has no file system of its own, so its clients can "
            "fill the run directory",
            path=pipe,
            reason=os.strerror(ctypes.get_errno()),
        )


def unmount(pipe: Path) -> None:
    """Takes it away, where it is; containers keep what they have.

    Raises:
        OSError: it may not.
    """
    if not os.path.ismount(pipe):
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.umount2(os.fsencode(pipe), _DETACH) != 0 and ctypes.get_errno() != errno.EINVAL:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(pipe))
