"""Which allocation a process belongs to: its mounts and its cgroup, two sources.

* *Mounts*: a container has its allocation's `limits` mounted, and no other's is within its reach.
  The kernel tells file system and path of what is mounted (``mountinfo``), so no name inside the
  container is followed. This names the container itself, whatever the runtime and its cgroups.
* *Cgroup*: names the pod, which no tenant can change. Where it contradicts the mounts (somebody
  who reads the run directory mounted a file of another's), the process belongs to nobody. Where
  the mounts say nothing (a tenant with a user namespace may leave them behind), it is the pod's
  allocation if the pod has just one; that is enough to charge it and never enough to end it.
* A process in no pod (`vgpuctl run`, tests) belongs to the allocation whose files it has mapped.

`ProcessAttribution` remembers what it found by pid and start time, so that a look that brings
nothing new costs one small read a process. Used by one thread.
"""

import os
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from deviceplugin.recovery.kubelet_checkpoint import CheckpointReading, KubeletEntry
from deviceplugin.recovery.kubelet_records import allocation_of

from .procfs import (
    PROC,
    MountPoint,
    Process,
    read_mapped_files,
    read_mounts,
    read_process,
    start_time,
)

_LIMITS = "limits"
_FILES = frozenset({_LIMITS, "usage"})


class AttributionSource(StrEnum):
    """What tells where a process belongs."""

    MOUNTS = "mounts"
    OLD_MOUNTS = "mounts of files that are gone"
    POD = "pod"
    MAPPED = "mapped files"


@dataclass(frozen=True, slots=True)
class Attribution:
    """A process and where it belongs; an empty ``allocation_id``: to no allocation."""

    process: Process
    allocation_id: str = ""
    source: AttributionSource | None = None

    @property
    def identity(self) -> tuple[Hashable, ...]:
        """What must be the same for it to be the same one; its name is for itself to choose."""
        return self.process.key, self.process.pod, self.allocation_id, self.source


#: pod uids that the kubelet has on record, by allocation id
Pods = Mapping[str, Set[str]]


class RecordedPods:
    """Who the kubelet's checkpoint says the allocations are; asked by one thread."""

    def __init__(self, read_checkpoint: Callable[[], CheckpointReading]) -> None:
        """Reads nothing yet.

        Args:
            read_checkpoint: reads the kubelet's checkpoint.
        """
        self._read_checkpoint = read_checkpoint
        self._entries: Sequence[KubeletEntry] | None = None
        self._pods: dict[str, set[str]] = {}

    def read(self) -> Pods:
        """Returns the pod uids of each allocation."""
        entries = self._read_checkpoint().entries
        if entries is not self._entries:
            self._entries, self._pods = entries, {}
            for entry in entries:
                allocation_id = allocation_of(entry)
                if allocation_id is not None:
                    self._pods.setdefault(allocation_id, set()).add(entry.pod_uid)
        return self._pods


def place_of(mounts: Iterable[MountPoint], directory: str) -> tuple[str, str] | None:
    """Returns file system and path in it of ``directory``, by the mounts of who sees it so.

    Args:
        directory: absolute, without links.
    """
    best: MountPoint | None = None
    for mount in mounts:
        top = mount.target.rstrip("/") + "/"
        if (directory + "/").startswith(top) and (
            best is None or len(mount.target) >= len(best.target)
        ):
            best = mount  # of two at one place the later one covers the other
    if best is None:
        return None
    rest = directory[len(best.target.rstrip("/")) :]
    return best.device, best.source.rstrip("/") + rest


def mounted(mounts: Iterable[MountPoint], place: tuple[str, str]) -> tuple[set[str], set[str]]:
    """Returns the ids of the allocations whose `limits` are mounted, and those whose were.

    Args:
        place: of the directory of all allocations (`place_of`).
    """
    present: set[str] = set()
    gone: set[str] = set()
    device, top = place
    for mount in mounts:
        if mount.device != device or not mount.source.startswith(top + "/"):
            continue
        allocation_id, slash, name = mount.source[len(top) + 1 :].partition("/")
        if slash and name == _LIMITS:
            (gone if mount.deleted else present).add(allocation_id)
    return present, gone


def judge(
    process: Process, present: Set[str], gone: Set[str], held: Set[str], pods: Pods
) -> Attribution:
    """Returns where a process belongs by mounts and cgroup.

    Args:
        present: ids of the allocations whose `limits` it has mounted.
        gone: the same of files that were removed since.
        held: ids of the allocations that there are.
        pods: who the kubelet says they are.
    """
    uid = process.pod.pod_uid if process.pod else None
    for ids, source in (
        (present & held, AttributionSource.MOUNTS),
        (gone & held, AttributionSource.OLD_MOUNTS),
    ):
        if len(ids) == 1:
            (allocation_id,) = ids
            named = pods.get(allocation_id)
            if uid is not None and named and uid not in named:
                return Attribution(process)
            return Attribution(process, allocation_id, source)
        if ids:
            return Attribution(process)  # it sees the files of several: none of them is its own
    of_pod = [each for each, uids in pods.items() if uid in uids and each in held]
    if uid is not None and len(of_pod) == 1:
        return Attribution(process, of_pod[0], AttributionSource.POD)
    return Attribution(process)


class ProcessAttribution:
    """Where the processes of this host belong."""

    def __init__(self, allocations_dir: Path, pods: Callable[[], Pods], proc: Path = PROC) -> None:
        """Looks at nothing yet.

        Args:
            allocations_dir: the host's directory of all allocations.
            pods: tells who the kubelet says the allocations are.
        """
        self._directory, self._pods, self._proc = allocations_dir, pods, proc
        self._known: dict[int, Attribution] = {}

    def of(self, pids: Iterable[int], held: Set[str]) -> dict[int, Attribution]:
        """Returns where processes belong; those that are gone are left out.

        Args:
            held: ids of the agent's allocations.
        """
        found: dict[int, Attribution] = {}
        for pid in pids:
            known = self._known.get(pid)
            if (
                known is not None
                and known.allocation_id
                and start_time(pid, self._proc) == known.process.start_time_ticks
                and (known.allocation_id in held or known.source is AttributionSource.MAPPED)
            ):
                found[pid] = known
            elif (fresh := self.look(pid, held)) is not None:
                found[pid] = fresh
        self._known = found
        return found

    def look(self, pid: int, held: Set[str]) -> Attribution | None:
        """Returns where a process belongs by what can be seen now, None where it is gone."""
        process = read_process(pid, self._proc)
        if process is None:
            return None
        # Anew each time: the run directory may have been mounted since.
        real = os.path.realpath(self._directory)
        place = place_of(read_mounts("self"), real)
        present, gone = mounted(read_mounts(pid, self._proc), place) if place else (set(), set())
        found = judge(process, present, gone, held, self._pods() if process.pod else {})
        if not found.allocation_id and process.pod is None and not present:
            found = self._by_mapped_files(process)
        still = start_time(pid, self._proc) == process.start_time_ticks
        return found if still else None

    def _by_mapped_files(self, process: Process) -> Attribution:
        top = os.path.realpath(self._directory) + "/"
        for inode, path in read_mapped_files(process.pid, self._proc):
            allocation_id, _, name = path.removeprefix(top).partition("/")
            if not path.startswith(top) or name not in _FILES:
                continue
            try:
                is_it = os.lstat(path).st_ino == inode
            except OSError:
                continue
            if is_it:
                return Attribution(process, allocation_id, AttributionSource.MAPPED)
        return Attribution(process)
