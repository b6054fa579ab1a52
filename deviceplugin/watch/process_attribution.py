"""Which allocation a process belongs to: its mounts and its cgroup, two sources.

* *Mounts*: a container has its allocation's `limits` mounted, and no other's is within its reach.
  The kernel tells file system and path of what is mounted (``mountinfo``), so no name inside the
  container is followed. This names the container itself, whatever the runtime and its cgroups.
* *Cgroup*: names pod and container, which no tenant can change. Where it contradicts the mounts
  (somebody who reads the run directory mounted a file of another's), the process belongs to nobody.
* *Container*: a process may leave its mounts behind (``chroot``, a mount namespace of its own), and
  not its cgroup. So a container's id is learned from any of its processes that has the mounts, or
  from its mount namespace, and is enough from then on for the others. While neither has them, a
  process is of the pod's allocation if the pod has just one; that is enough to charge it and never
  to end it.
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

from .cgroups import PodCgroup
from .procfs import (
    PROC,
    MountPoint,
    Process,
    container_members,
    read_mapped_files,
    read_mounts,
    read_namespace_mounts,
    read_process,
    start_time,
)

_LIMITS = "limits"
_FILES = frozenset({_LIMITS, "usage"})
#: So many processes of a container are looked at for its mounts: its first ones have them …
_MOST_MEMBERS = 16
#: … and after a search in vain, the next one is so many looks later.
_SEEK_AGAIN = 8


class AttributionSource(StrEnum):
    """What tells where a process belongs."""

    MOUNTS = "mounts"
    OLD_MOUNTS = "mounts of files that are gone"
    CONTAINER = "container"
    POD = "pod"
    MAPPED = "mapped files"


@dataclass(frozen=True, slots=True)
class Attribution:
    """A process and where it belongs; an empty ``allocation_id``: to no allocation."""

    process: Process
    allocation_id: str = ""
    source: AttributionSource | None = None

    @property
    def is_certain(self) -> bool:
        """Whether the very container is known."""
        return self.source in (AttributionSource.MOUNTS, AttributionSource.CONTAINER)

    @property
    def identity(self) -> tuple[Hashable, ...]:
        """What must be the same for it to be the same one; its name is for itself to choose, and
        whether it has its container's mounts."""
        return self.process.key, self.process.pod, self.allocation_id, self.is_certain


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
        #: Allocation by pod uid and container id; empty where its processes have several.
        self._containers: dict[PodCgroup, str] = {}
        self._in_vain: dict[PodCgroup, int] = {}  # and for how many looks to leave it at that

    def of(self, pids: Iterable[int], held: Set[str]) -> dict[int, Attribution]:
        """Returns where processes belong; those that are gone are left out.

        Args:
            held: ids of the agent's allocations.
        """
        found: dict[int, Attribution] = {}
        self._containers = {
            container: each for container, each in self._containers.items() if each in held
        }
        for pid in pids:
            known = self._known.get(pid)
            if (
                known is not None
                and known.allocation_id
                and known.source is not AttributionSource.POD  # more may be known by now
                and start_time(pid, self._proc) == known.process.start_time_ticks
                and (known.allocation_id in held or known.source is AttributionSource.MAPPED)
            ):
                found[pid] = known
            elif (fresh := self.look(pid, held)) is not None:
                found[pid] = fresh
        self._seek_containers(found, held)
        self._known = found
        return found

    def look(self, pid: int, held: Set[str]) -> Attribution | None:
        """Returns where a process belongs by what can be seen now, None where it is gone."""
        process = read_process(pid, self._proc)
        if process is None:
            return None
        found = self._judge(process, read_mounts(pid, self._proc), held)
        still = start_time(pid, self._proc) == process.start_time_ticks
        return found if still else None

    def _judge(self, process: Process, mounts: Iterable[MountPoint], held: Set[str]) -> Attribution:
        # Anew each time: the run directory may have been mounted since.
        real = os.path.realpath(self._directory)
        place = place_of(read_mounts("self"), real)
        present, gone = mounted(mounts, place) if place else (set(), set())
        pods = self._pods() if process.pod else {}
        found = judge(process, present, gone, held, pods)
        if process.pod is None:
            if not found.allocation_id and not present:
                found = self._by_mapped_files(process)
        elif found.source is AttributionSource.MOUNTS:
            self._learn(process.pod, found.allocation_id, pods)
        elif found.source is not AttributionSource.OLD_MOUNTS:
            learned = self._containers.get(process.pod, "")
            if learned in held:
                return Attribution(process, learned, AttributionSource.CONTAINER)
        return found

    def _learn(self, container: PodCgroup, allocation_id: str, pods: Pods) -> None:
        """Notes whose a container is, where the kubelet says so of its pod, too."""
        if container.container_id and container.pod_uid in pods.get(allocation_id, ()):
            known = self._containers.setdefault(container, allocation_id)
            if known != allocation_id:
                self._containers[container] = ""

    def _seek_containers(self, found: dict[int, Attribution], held: Set[str]) -> None:
        """Looks further for containers of which those processes that were asked for tell nothing.

        These may have left their mounts behind, as a ``chroot`` does. Other processes of the
        container may have them, and else the namespace has.
        """
        unsure = {
            pid: each.process.pod
            for pid, each in found.items()
            if each.process.pod is not None
            and each.process.pod.container_id
            and each.source in (None, AttributionSource.POD)
        }
        self._in_vain = {c: n - 1 for c, n in self._in_vain.items() if n > 0}
        sought = {c for c in unsure.values() if c not in self._containers} - self._in_vain.keys()
        if not sought:
            return
        self._in_vain |= dict.fromkeys(sought, _SEEK_AGAIN)
        wanted = {container.container_id for container in sought}
        for members in container_members(wanted, self._proc).values():
            for pid in members[:_MOST_MEMBERS]:
                self.look(pid, held)
        for pid, container in unsure.items():
            if container in sought and container not in self._containers:
                sought.discard(container)
                process = found[pid].process
                mounts = list(read_namespace_mounts(pid, self._proc))
                if start_time(pid, self._proc) == process.start_time_ticks:
                    self._judge(process, mounts, held)
        for pid, container in unsure.items():
            if container in self._containers and (fresh := self.look(pid, held)) is not None:
                found[pid] = fresh

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
