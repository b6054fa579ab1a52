"""What is mounted where, as ``/proc/<pid>/mountinfo`` says, and who has slices mounted.

A container has single files of a directory of ours mounted: such a mount's root lies below that
directory on the same file system. Who has the whole directory (services with mounts of their own
have a copy of all the node's) holds no slice.
"""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from libvgpu.errors import VgpuError


@dataclass(frozen=True, slots=True)
class MountedPart:
    """One line of a table of mounts.

    Attributes:
        device: of the file system, as ``major:minor``.
        root: what of the file system is mounted.
        point: where.
        source: what the file system is of, as who mounted it said.
    """

    device: str
    root: PurePosixPath
    point: PurePosixPath
    kind: str
    source: str


@dataclass(frozen=True, slots=True)
class DirectoryPlace:
    """Where a directory is, whatever is mounted how."""

    device: str
    root: PurePosixPath


def read_mounts(process: Path) -> list[MountedPart]:
    """Returns the mounts that a process sees, in the order in which they were made.

    Args:
        process: its directory in /proc.

    Raises:
        OSError: it has ended.
    """
    found = []
    # Names may hold any other end of a line than a newline.
    for line in filter(None, (process / "mountinfo").read_bytes().split(b"\n")):
        fields, _, kind = line.decode(errors="replace").partition(" - ")
        _, _, device, root, point, *_ = fields.split(" ")
        name, source, *_ = kind.split(" ")
        found.append(MountedPart(device, PurePosixPath(root), PurePosixPath(point), name, source))
    return found


def place_of(directory: Path, mounts: Iterable[MountedPart]) -> DirectoryPlace:
    """Returns where a directory is, of which ``mounts`` are those of the node.

    Raises:
        VgpuError: nothing is mounted above it.
    """
    path = PurePosixPath(directory)
    above: MountedPart | None = None
    for mount in mounts:  # of two at one point the later one is seen
        if path.is_relative_to(mount.point) and (
            above is None or mount.point.is_relative_to(above.point)
        ):
            above = mount
    if above is None:
        raise VgpuError(f"the node has nothing mounted at or above {directory}")
    return DirectoryPlace(above.device, above.root / path.relative_to(above.point))


def holders(proc: Path, places: Iterable[DirectoryPlace]) -> Iterator[tuple[int, PurePosixPath]]:
    """Yields processes that have a part of one of the places mounted, and what of it.

    Of processes that have the same mounts one is named; the node's own are not looked at.
    """
    wanted = tuple(places)
    seen = {os.readlink(proc / "1/ns/mnt")}
    for process in sorted(proc.iterdir()):
        if not process.name.isdecimal():
            continue
        try:
            namespace = os.readlink(process / "ns/mnt")
            if namespace in seen:
                continue
            mounts = read_mounts(process)
        except OSError:  # it has ended
            continue
        seen.add(namespace)
        for mount in mounts:
            if any(
                mount.device == place.device and place.root in mount.root.parents
                for place in wanted
            ):
                yield int(process.name), mount.point
                break
