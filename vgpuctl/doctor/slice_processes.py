"""The processes of the pods that have a slice, with what the loader has mapped into them.

Only files that the kernel writes from its own records are read (`deviceplugin.watch.procfs`), so a
tenant's file system cannot hold `vgpuctl` up.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from deviceplugin.watch.process_attribution import mounted, place_of
from deviceplugin.watch.procfs import read_mapped_files, read_mounts, read_process

_DELETED = " (deleted)"


@dataclass(frozen=True, slots=True)
class SliceProcess:
    """One process in a container with a slice.

    Attributes:
        owner: NAMESPACE/POD/CONTAINER, or the allocation's id while that is not known.
        has_pod_cgroup: its cgroup names a pod in a form that the agent reads.
        cgroup: the path of its cgroup, for messages.
        files: paths of what it has mapped; None where this user may not see them.
    """

    pid: int
    command: str
    owner: str
    has_pod_cgroup: bool
    cgroup: str
    files: tuple[str, ...] | None


def slice_processes(owners: Mapping[str, str], run_dir: Path, proc: Path) -> list[SliceProcess]:
    """Returns the processes that have the `limits` of an allocation mounted, by pid.

    Args:
        owners: who has each allocation, by its id.
    """
    place = place_of(read_mounts("self"), os.path.realpath(run_dir / "allocations"))
    if place is None or not owners:
        return []
    found = []
    for pid in pids(proc):
        ids = mounted(read_mounts(pid, proc), place)[0] & owners.keys()
        process = read_process(pid, proc) if len(ids) == 1 else None
        if process is None:
            continue  # of no container, one that sees the whole run directory, or gone
        (allocation_id,) = ids
        found.append(
            SliceProcess(
                pid,
                process.command,
                owners[allocation_id],
                process.pod is not None,
                _cgroup(pid, proc),
                _files(pid, proc),
            )
        )
    return found


def pids(proc: Path) -> Iterator[int]:
    """Yields the processes of a node."""
    try:
        names = os.listdir(proc)
    except OSError:
        return
    yield from sorted(int(name) for name in names if name.isdecimal())


def _cgroup(pid: int, proc: Path) -> str:
    try:
        text = (proc / str(pid) / "cgroup").read_bytes().decode(errors="replace")
    except OSError:
        return ""
    return text.removesuffix("\n").rpartition("\n")[2].split(":", 2)[-1]


def _files(pid: int, proc: Path) -> tuple[str, ...] | None:
    try:
        os.close(os.open(proc / str(pid) / "maps", os.O_RDONLY | os.O_CLOEXEC))
    except PermissionError:
        return None
    except OSError:
        return ()
    paths = (path.removesuffix(_DELETED) for _, path in read_mapped_files(pid, proc))
    return tuple(dict.fromkeys(paths))
