"""One check of what the shim cannot see: what NVML says against what the ledgers say.

A ledger is read after NVML, so what is freed in between looks like an excess; what looks like one
is read again a few times within the check, between two readings of the ledger, and the least
counts.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from deviceplugin.model.allocations import Allocation
from deviceplugin.policy.limits.learnt_sizes import MeasuredSizes, Sizes
from libvgpu.errors import RegionError
from libvgpu.ledger_view import Ledger, damage, read_ledger
from libvgpu.limits import ContainerLimits
from libvgpu.sizes import format_size

from .nvml_processes import GpuReading
from .process_attribution import Attribution, AttributionSource
from .report import DamagedUsage, SeenProcess
from .unaccounted_memory import Held, Steady, beyond_slice_bytes, excess_bytes, next_charge

#: bytes by GPU, by allocation id
Charges = Mapping[str, Mapping[str, int]]

_READ_AGAIN, _READ_AGAIN_S = 4, 0.007


@dataclass(frozen=True, slots=True)
class ComparedAllocation:
    """One allocation of the agent's.

    Attributes:
        directory: where its files are.
        asked: its limits without rules.
        limits: those in force, with what is charged already.
    """

    allocation: Allocation
    directory: Path
    asked: ContainerLimits
    limits: ContainerLimits

    def index(self, uuid: str) -> int | None:
        """Returns the place of a GPU in `limits`, None where it has no slice of it."""
        return next((n for n, d in enumerate(self.limits.devices) if d.uuid == uuid), None)


class MemoryComparison:
    """One check, GPU by GPU.

    Attributes:
        charges: what is to be charged from now on, by allocation and GPU.
        bypassing: see `watcher`.
        foreign: the same.
        keys: what is followed over time.
        damaged: containers whose `usage` they have made unreadable, for as long as that counts.
        sizes: what containers say of contexts and blocks.
    """

    def __init__(
        self,
        mps_daemons: Mapping[str, int],
        watched: Mapping[str, ComparedAllocation],
        found: Mapping[int, Attribution],
        steady: Steady,
        slice_bytes: Mapping[tuple[str, str], int],
        now_s: float,
        read_again: Callable[[str], GpuReading | None],
        pause: Callable[[float], bool],
    ) -> None:
        """Judges nothing yet.

        Args:
            mps_daemons: pids of the MPS control daemons that are ours, by GPU.
            watched: the agent's allocations, by id.
            found: where processes belong, by pid.
            steady: what earlier looks saw.
            slice_bytes: the most that each slice was, by allocation and GPU.
            now_s: on a clock that never goes back.
            read_again: asks NVML for one GPU once more.
            pause: waits so many seconds; returns whether all is to end.
        """
        self.watched, self.found, self.now_s = watched, found, now_s
        self.charges: dict[tuple[str, str], int] = {}
        self.bypassing: list[SeenProcess] = []
        self.foreign: list[SeenProcess] = []
        self.keys: set[Hashable] = set()
        self.damaged: list[DamagedUsage] = []
        self.sizes: list[MeasuredSizes] = []
        self._mps_daemons, self._steady, self._slice_bytes = mps_daemons, steady, slice_bytes
        self._read_again, self._pause = read_again, pause
        self._damage: dict[str, str] = {}  # of this very look, by allocation

    def holders(self, readings: Mapping[str, GpuReading]) -> dict[str, dict[int, str]]:
        """Returns the allocation of each process that belongs to one, by GPU and pid."""
        return {
            uuid: {
                pid: self.found[pid].allocation_id
                for pid in reading.memory_bytes
                if pid in self.found and self.found[pid].allocation_id
            }
            for uuid, reading in readings.items()
        }

    def examine_usage(self) -> None:
        """Judges the files themselves, whether or not a GPU is used; to be called first."""
        for allocation_id, each in self.watched.items():
            what = damage(each.directory, allocation_id)
            found = DamagedUsage(allocation_id, each.allocation.owner, what)
            if what:
                self._damage[allocation_id] = what
            self.keys.add(found.key)
            if self._steady.note(found.key, self.now_s, bool(what)):
                self.damaged.append(found)

    def examine(self, uuid: str, reading: GpuReading) -> None:
        """Judges one GPU."""
        mine: dict[str, list[Attribution]] = {}
        for pid in reading.memory_bytes:
            each = self.found.get(pid)
            if each is None:
                continue  # it has ended; NVML will notice
            if each.allocation_id in self.watched:
                mine.setdefault(each.allocation_id, []).append(each)
            elif not each.allocation_id and not self._is_mps_server(uuid, each):
                self._note(self.foreign, uuid, each, reading)
        ledgers = {each: self._ledger(each) for each in mine}
        self._note_sizes(uuid, reading, mine, ledgers)
        for allocation_id, belongings in mine.items():
            for each in belongings:
                if self._is_bypassing(uuid, each, ledgers[allocation_id]):
                    self._note(self.bypassing, uuid, each, reading)
        excess, beyond = self._excess(uuid, reading, mine, ledgers)
        self._charge(uuid, excess)
        self._note_beyond(uuid, reading, mine, beyond)

    def _note_sizes(
        self,
        uuid: str,
        reading: GpuReading,
        mine: Mapping[str, Sequence[Attribution]],
        ledgers: Mapping[str, Ledger | None],
    ) -> None:
        for allocation_id, belongings in mine.items():
            index, ledger = self.watched[allocation_id].index(uuid), ledgers[allocation_id]
            if index is None or ledger is None:
                continue
            held = max(reading.memory_bytes[each.process.pid] or 0 for each in belongings)
            sizes = Sizes(ledger.context_bytes[index], ledger.block_bytes[index])
            if sizes != Sizes():
                self.sizes.append(MeasuredSizes(allocation_id, uuid, sizes, held))

    def _excess(
        self,
        uuid: str,
        reading: GpuReading,
        mine: Mapping[str, Sequence[Attribution]],
        ledgers: dict[str, Ledger | None],
    ) -> tuple[dict[str, int], dict[str, int]]:
        """Returns the unaccounted memory of each container now, in doubt the least of some, and
        what of it is beyond its slice."""
        held = self._held(uuid, reading, mine, ledgers)
        excess = excess_bytes(held, self._used(reading))
        beyond = beyond_slice_bytes(held, excess)
        for _ in range(_READ_AGAIN):
            if not any(excess.values()) or self._pause(_READ_AGAIN_S):
                break
            again = self._read_again(uuid)
            if again is None:
                break
            fresh = {each: self._ledger(each) for each, size in excess.items() if size}
            ledgers |= {each: _larger(ledgers[each], fresh[each]) for each in fresh}
            held = self._held(uuid, again, mine, ledgers)
            less = excess_bytes(held, self._used(again))
            excess = _least(excess, less)
            beyond = _least(beyond, beyond_slice_bytes(held, less))
            ledgers |= fresh
        return excess, beyond

    def _used(self, reading: GpuReading) -> int | None:
        """Returns the GPU's used bytes without those of processes that are ending."""
        if reading.used_bytes is None:
            return None
        left = sum(size or 0 for pid, size in reading.memory_bytes.items() if pid not in self.found)
        return max(0, reading.used_bytes - left)

    def _charge(self, uuid: str, excess: Mapping[str, int]) -> None:
        """Notes the unaccounted memory of each container, and what it is charged for that."""
        for allocation_id, watched in self.watched.items():
            index = watched.index(uuid)
            if index is None:
                continue
            key = "excess", allocation_id, uuid
            self.keys.add(key)
            steady = self._steady.note(key, self.now_s, excess.get(allocation_id, 0))
            charged = watched.limits.devices[index].unaccounted_bytes
            wanted = charged if steady is None else next_charge(charged, steady)
            self.charges[allocation_id, uuid] = wanted

    def _note_beyond(
        self,
        uuid: str,
        reading: GpuReading,
        mine: Mapping[str, Sequence[Attribution]],
        beyond: Mapping[str, int],
    ) -> None:
        """Enters the largest processes of who steadily holds more than its slice ever was.

        Its ledger says less than it holds, or counts processes as its own that others are: which of
        them it is, only its memory tells.
        """
        for allocation_id, size in beyond.items():
            key = "beyond", allocation_id, uuid
            self.keys.add(key)
            steady = self._steady.note(key, self.now_s, size)
            if not steady:
                continue
            seen = [self._seen(uuid, each, reading) for each in mine[allocation_id]]
            known = {each.key for each in self.bypassing}
            left = steady - sum(each.memory_bytes or 0 for each in seen if each.key in known)
            how = f"while its container holds {format_size(steady)} more than its slice"
            for each in sorted(seen, key=lambda one: one.memory_bytes or 0, reverse=True):
                if left > 0 and each.key not in known:
                    left -= each.memory_bytes or 0
                    self.bypassing.append(replace(each, how=how))

    def _note(
        self, where: list[SeenProcess], uuid: str, each: Attribution, reading: GpuReading
    ) -> None:
        """Enters a process that has been there for long enough."""
        seen = self._seen(uuid, each, reading)
        if each.allocation_id in self._damage:
            seen = replace(seen, how="while its container keeps its usage unreadable")
        key = where is self.foreign, seen.key
        self.keys.add(key)
        if self._steady.note(key, self.now_s, 1):
            where.append(seen)

    def _seen(self, uuid: str, each: Attribution, reading: GpuReading) -> SeenProcess:
        process, watched = each.process, self.watched.get(each.allocation_id)
        return SeenProcess(
            uuid,
            process.pid,
            process.start_time_ticks,
            process.command,
            reading.memory_bytes[process.pid],
            each.allocation_id,
            watched.allocation.owner if watched else None,
            watched is not None and watched.index(uuid) is not None,
        )

    def _is_mps_server(self, uuid: str, each: Attribution) -> bool:
        """An MPS server belongs to no container; on old drivers it holds what its clients have.

        It is a child of the GPU's daemon. Any program may have its name.
        """
        daemon = self._mps_daemons.get(uuid)
        return bool(daemon) and each.process.parent_pid == daemon

    def _is_bypassing(self, uuid: str, each: Attribution, ledger: Ledger | None) -> bool:
        if self.watched[each.allocation_id].index(uuid) is None:
            return True  # the shim lets nothing onto a GPU that `limits` does not name
        if each.source is AttributionSource.OLD_MOUNTS:
            return False  # nobody knows
        if ledger is None:
            # Counts like a process that is not in it, so that no change between the two helps.
            return each.allocation_id in self._damage
        process = each.process
        start = 0 if process.has_own_clock else process.start_time_ticks
        named = process.inner_pid, process.pid_namespace, start
        return not any(known.is_the_one(*named) for known in ledger.processes)

    def _held(
        self,
        uuid: str,
        reading: GpuReading,
        mine: Mapping[str, Sequence[Attribution]],
        ledgers: Mapping[str, Ledger | None],
    ) -> dict[str, Held]:
        found = {}
        for allocation_id, belongings in mine.items():
            watched, ledger = self.watched[allocation_id], ledgers[allocation_id]
            index = watched.index(uuid)
            if index is None:
                continue
            if any(each.source is AttributionSource.OLD_MOUNTS for each in belongings):
                ledger = None  # what is there now is not the ledger of these processes
            used = reading.memory_bytes
            nvml = [used.get(each.process.pid) or 0 for each in belongings]
            known = [b for b in belongings if not self._is_bypassing(uuid, b, ledger)]
            found[allocation_id] = Held(
                nvml_bytes=sum(nvml),
                ledger_bytes=ledger.used_bytes[index] if ledger else None,
                slice_bytes=self._slice_bytes[allocation_id, uuid],
                context_bytes=watched.limits.devices[index].context_bytes,
                known_processes=len(known),
            )
        return found

    def _ledger(self, allocation_id: str) -> Ledger | None:
        watched = self.watched[allocation_id]
        try:
            ledger = read_ledger(watched.directory)
        except RegionError:
            return None
        if allocation_id in self._damage or ledger.allocation_id != allocation_id:
            return None
        return ledger if len(ledger.used_bytes) >= len(watched.limits.devices) else None


def _least(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {each: min(size, other[each]) for each, size in one.items()}


def _larger(one: Ledger | None, other: Ledger | None) -> Ledger | None:
    """Returns the later of two ledgers with the larger of their figures."""
    if one is None or other is None:
        return None
    used = tuple(map(max, one.used_bytes, other.used_bytes))
    processes = one.processes | other.processes
    return replace(one, used_bytes=used, processes=processes)
