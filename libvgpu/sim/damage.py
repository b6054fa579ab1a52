"""Why a machine cannot be made or opened, in one sentence and what to do."""

import errno
import os
import struct
from pathlib import Path

from ..errors import SimulationError

# The first fields of struct sim_machine_header in sim/core/layout.h: magic, layout version, number
# of devices, size of the file. Every layout version begins so.
_HEAD = struct.Struct("<QIIQ")
_MAGIC = 0x31454E494843414D


class DamagedMachine(SimulationError):  # noqa: N818 - what it is, not what happened
    """Its file is not one that this version can use."""


def cannot_make(directory: Path, error: int) -> SimulationError:
    """Returns the error of a machine that cannot be made, for an errno."""
    hint = None
    if error in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        hint = "free space there, or put it elsewhere (XDG_RUNTIME_DIR, for machines by name)"
    elif error in (errno.EACCES, errno.EPERM, errno.EROFS):
        hint = f"make the directory writable to user {os.geteuid()}, or put it elsewhere"
    elif error == errno.EEXIST:
        hint = "use the machine that is there, or remove the directory"
    return SimulationError(
        f"cannot make a simulated machine in {directory}: {os.strerror(error)}", hint
    )


def cannot_open(directory: Path, error: int) -> SimulationError:
    """Returns the error of a machine that cannot be opened, for an errno."""
    path = directory / "machine"
    remove = f"remove the directory {directory}"
    if directory.name.startswith("@"):
        remove = f"remove the machine: vgpuctl sim rm {directory.name}"
    if error == errno.EPROTO:
        return DamagedMachine(f"no simulated machine in {directory}: {_flaw(path)}", remove)
    words = os.strerror(error)
    hint = None
    if error == errno.EUSERS:
        words = "as many processes use it as it has room for"
        hint = "end some of them"
    elif error in (errno.EACCES, errno.EPERM):
        hint = f"{path} must be readable and writable to user {os.geteuid()}"
    return SimulationError(f"no simulated machine in {directory}: {words}", hint)


def _flaw(path: Path) -> str:
    try:
        with open(path, "rb") as file:
            head = file.read(_HEAD.size)
            size = os.fstat(file.fileno()).st_size
    except OSError as error:
        return f"its file {path} cannot be read: {error.strerror}"
    if len(head) < _HEAD.size or _HEAD.unpack(head)[0] != _MAGIC:
        return f"its file {path} is damaged: it does not begin as a machine does"
    _, layout, _, wanted = _HEAD.unpack(head)
    if wanted != size:
        return f"its file {path} is damaged: it has {size} bytes instead of {wanted}"
    return f"its file {path} was made by another version of vgpu (layout {layout})"
