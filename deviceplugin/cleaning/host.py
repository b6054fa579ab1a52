"""What is removed from one node: the tmpfs of the run directory, our directories, homes of daemons.

Nothing is removed while somebody still needs it: a process that has files of a slice mounted, or a
program of `vgpuctl run`. Nothing that somebody else mounted below is touched either. It runs in the
mounts of the node (`enter_node`), where a module that is not loaded yet cannot be found.
"""

import ctypes
import errno
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from libvgpu.allocation_dirs import list_allocations
from libvgpu.errors import VgpuError

from .mounts import MountedPart, holders, place_of, read_mounts

#: What the init container of the chart mounts the run directory's tmpfs as.
OUR_SOURCE = "vgpu"
#: What the runner of MPS mounts pipe directories as (`mps.pipe_mount`).
PIPE_SOURCE = "vgpu-mps"
_MOST_LAYERS = 8
_CLONE_NEWNS = 0x00020000
_UMOUNT_NOFOLLOW = 8
_BUSY_S, _BUSY_EVERY_S = 10.0, 0.2
_LEAST_PARTS = 3  # the root and two names


class HostInUse(VgpuError):  # noqa: N818 - it says how the node is
    """Something on the node still needs what would be removed."""


@dataclass(frozen=True, slots=True)
class HostDirectories:
    """Those of the chart's `dirs`; ``mps_root`` is None where daemons live in the run directory."""

    run: Path
    state: Path
    mps_root: Path | None = None

    def check(self) -> None:
        """Looks at the paths.

        Raises:
            VgpuError: one of them cannot be a directory of ours.
        """
        for path in filter(None, (self.run, self.state, self.mps_root)):
            if not path.is_absolute() or len(path.parts) < _LEAST_PARTS or ".." in path.parts:
                raise VgpuError(
                    f"{path} cannot be a directory of ours, all of it would be removed; allowed "
                    "are absolute paths of two names or more, such as /run/vgpu"
                )

    def resolved(self) -> "HostDirectories":
        """Returns where the paths lead."""
        root = self.mps_root.resolve() if self.mps_root else None
        return HostDirectories(self.run.resolve(), self.state.resolve(), root)


def enter_node(process: Path) -> None:
    """Makes the mounts of a process this one's own, which must have no other thread.

    Raises:
        VgpuError: it may not; it needs hostPID and privileged.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        with open(process / "ns/mnt", "rb") as namespace:
            if libc.setns(namespace.fileno(), _CLONE_NEWNS):
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    except OSError as error:
        raise VgpuError(f"the node's mounts cannot be entered: {error.strerror}") from None


def clean(
    directories: HostDirectories,
    proc: Path = Path("/proc"),
    unmount: Callable[[Path], None] | None = None,
) -> list[Path]:
    """Removes what is there; returns what it was.

    Raises:
        HostInUse: something still needs it; nothing was removed.
        VgpuError: something cannot be removed.
    """
    directories.check()
    directories = directories.resolved()  # mounts know no links, such as /var/run
    mounts = read_mounts(proc / "1")
    _check_unused(directories, proc, mounts)
    removed = []
    for pipe in _pipes(mounts, directories):
        (unmount or _unmount)(pipe)
    layers = [mount for mount in mounts if mount.point == PurePosixPath(directories.run)]
    for _ in layers[:_MOST_LAYERS]:
        (unmount or _unmount)(directories.run)
    homes = sorted(directories.mps_root.glob("GPU-*")) if directories.mps_root else []
    for path in (directories.run, directories.state, *homes):
        if not path.is_dir() or path.is_symlink():
            continue
        try:
            shutil.rmtree(path)
        except OSError as error:
            raise VgpuError(f"{error.filename} cannot be removed: {error.strerror}") from None
        removed.append(path)
    return removed


def _check_unused(directories: HostDirectories, proc: Path, mounts: list[MountedPart]) -> None:
    """Looks who needs the directories.

    Raises:
        HostInUse: somebody does.
    """
    ours = [each for each in (directories.run, directories.state, directories.mps_root) if each]
    for mount in mounts:
        at_run = mount.point == PurePosixPath(directories.run)
        if at_run and (mount.kind, mount.source) != ("tmpfs", OUR_SOURCE):
            raise HostInUse(
                f"{directories.run} is a file system that the chart did not mount ({mount.kind} "
                f"of {mount.source})"
            )
        is_other = not at_run and (mount.kind, mount.source) != ("tmpfs", PIPE_SOURCE)
        if is_other and any(mount.point.is_relative_to(directory) for directory in ours):
            raise HostInUse(f"something else is mounted at {mount.point}")
    places = [place_of(directory, mounts) for directory in ours]
    for pid, point in holders(proc, places):
        raise HostInUse(f"process {pid} ({_name(proc, pid)}) has a slice, mounted at {point}")
    for allocation in list_allocations(directories.run):
        owner = allocation.meta.owner_pid
        if owner and (proc / str(owner)).exists():
            raise HostInUse(f"process {owner} ({_name(proc, owner)}) runs under `vgpuctl run`")


def _pipes(mounts: list[MountedPart], directories: HostDirectories) -> list[Path]:
    """Returns where the pipe directories of daemons are mounted."""
    roots = [each for each in (directories.run, directories.mps_root) if each]
    return [
        Path(mount.point)
        for mount in mounts
        if (mount.kind, mount.source) == ("tmpfs", PIPE_SOURCE)
        and any(mount.point.is_relative_to(root) for root in roots)
    ]


def _name(proc: Path, pid: int) -> str:
    try:
        return (proc / str(pid) / "comm").read_text(errors="replace").strip()
    except OSError:
        return "it has ended"


def _unmount(path: Path) -> None:
    """Unmounts what is mounted at a path; who has just ended may keep it busy for a moment.

    Raises:
        HostInUse: somebody has a file open there.
        VgpuError: it cannot be unmounted.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    until_s = time.monotonic() + _BUSY_S
    while libc.umount2(os.fsencode(path), _UMOUNT_NOFOLLOW):
        code = ctypes.get_errno()
        if code != errno.EBUSY:
            raise VgpuError(f"{path} cannot be unmounted: {os.strerror(code)}")
        if time.monotonic() > until_s:
            raise HostInUse(f"somebody has a file in {path} open")
        time.sleep(_BUSY_EVERY_S)
