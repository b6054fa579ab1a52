"""What the processes of one `vgpuctl run` did, added up over its whole life.

`usage` has a slot for each process. A process that ended leaves its figures there until another
takes the slot, which clears them; so the file is read again and again, and the figures of a slot
are put aside when its generation moves. They are whole where the process was seen dead before; else
what it did after the last look is missing, and the account says so (`is_partial`).

The peak of a slice is known to lie between two figures: the largest one of a process or of a look,
and the largest sum of the peaks of processes that were there at one look (those that had just ended
too). With one process at a time both are the same.

Used by one thread.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from libvgpu.errors import RegionError
from libvgpu.region import ContainerUsage, DeviceUsage, ProcessUsage, read_usage
from libvgpu.usage import Refusal

from ..observe import container_usage
from .foreground import SideWork

_CLAIM = 2  # what the generation of a slot moves by, from one process to the next


@dataclass(slots=True)
class DeviceAccount:
    """What was done on one GPU.

    Attributes:
        peak_bytes: the most that was held for certain.
        most_peak_bytes: the most that may have been held at one time.
        launches, gpu_time_ns, held_ns, windows, refused_count, last_refusal, is_estimated: as of
            `DeviceUsage`, of all processes.
    """

    peak_bytes: int = 0
    most_peak_bytes: int = 0
    launches: int = 0
    gpu_time_ns: int = 0
    held_ns: int = 0
    windows: int = 0
    refused_count: int = 0
    last_refusal: Refusal | None = None
    is_estimated: bool = False

    def add(self, usage: DeviceUsage) -> None:
        """Adds the counters of one process."""
        self.launches += usage.launches
        self.gpu_time_ns += usage.gpu_time_ns
        self.held_ns += usage.held_ns
        self.windows += usage.windows
        self.refused_count += usage.refused_count
        self.is_estimated |= usage.is_estimated
        refusal, last = usage.last_refusal, self.last_refusal
        if refusal is not None and (last is None or refusal.at_ns >= last.at_ns):
            self.last_refusal = refusal


@dataclass(frozen=True, slots=True)
class Account:
    """The figures of a run.

    Attributes:
        devices: in the order of `limits`.
        is_partial: figures of processes that ended unseen are missing.
        problem: why the figures are old or missing, a sentence; empty otherwise.
    """

    devices: tuple[DeviceAccount, ...]
    is_partial: bool
    problem: str


@dataclass(slots=True)
class RunAccount:
    """Keeps the account of the slice in a directory, of so many devices."""

    directory: Path
    device_count: int
    _ended: list[DeviceAccount] = field(init=False)
    _rows: dict[int, ProcessUsage] = field(init=False, default_factory=dict)
    _generations: dict[int, int] = field(init=False, default_factory=dict)
    _is_partial: bool = field(init=False, default=False)
    _problem: str = field(init=False, default="")

    def __post_init__(self) -> None:
        self._ended = [DeviceAccount() for _ in range(self.device_count)]

    def look(self) -> None:
        """Reads the file; what cannot be read is said in the account."""
        try:
            usage = read_usage(self.directory)
        except RegionError as error:
            self._problem = error.message
        else:
            self._problem = ""
            self.note(usage)

    def note(self, usage: ContainerUsage) -> None:
        """Takes in what the file says now."""
        rows = {process.slot: process for process in usage.processes}
        # One that had ended at the look before cannot have been there at the same time as others.
        counted = [row for slot, row in rows.items() if row.alive or not self._was_dead(slot, row)]
        for slot, before in list(self._rows.items()):
            now = rows.get(slot)
            if now is None or now.generation != before.generation:
                self._put_aside(before, now)
        for slot, row in rows.items():
            since = row.generation - self._generations.get(slot, -1)
            self._is_partial |= since > _CLAIM and not row.shared
            self._generations[slot] = row.generation
        self._rows = rows
        for index, account in enumerate(self._ended):
            peaks = [row.devices[index].peak_bytes for row in counted if index < len(row.devices)]
            total = container_usage(usage, index)
            used_bytes = total.used_bytes if total else 0
            account.peak_bytes = max(account.peak_bytes, used_bytes, *peaks)
            account.most_peak_bytes = max(account.most_peak_bytes, account.peak_bytes, sum(peaks))

    def stop(self) -> None:
        """Has nothing to put aside: what happened meanwhile is found at the next look."""

    def result(self) -> Account:
        """Reads the file once more and returns the figures up to now."""
        self.look()
        found = []
        for index, ended in enumerate(self._ended):
            total = DeviceAccount(ended.peak_bytes, ended.most_peak_bytes)
            _add_account(total, ended)
            for row in self._rows.values():
                if index < len(row.devices):
                    total.add(row.devices[index])
            found.append(total)
        return Account(tuple(found), self._is_partial, self._problem)

    def _was_dead(self, slot: int, row: ProcessUsage) -> bool:
        before = self._rows.get(slot)
        return before is not None and before.generation == row.generation and not before.alive

    def _put_aside(self, before: ProcessUsage, now: ProcessUsage | None) -> None:
        if before.shared and now is not None and now.shared:
            return  # a piece of memory that one more process holds
        self._is_partial |= before.alive and not before.shared
        for account, usage in zip(self._ended, before.devices, strict=False):
            account.add(usage)


def _add_account(total: DeviceAccount, part: DeviceAccount) -> None:
    total.launches += part.launches
    total.gpu_time_ns += part.gpu_time_ns
    total.held_ns += part.held_ns
    total.windows += part.windows
    total.refused_count += part.refused_count
    total.last_refusal = part.last_refusal
    total.is_estimated |= part.is_estimated


@dataclass(frozen=True, slots=True)
class Together:
    """Several pieces of work that go on next to a command, as one."""

    works: Sequence[SideWork]

    def look(self) -> None:
        """Does what is due of each."""
        for work in self.works:
            work.look()

    def stop(self) -> None:
        """Puts each aside."""
        for work in self.works:
            work.stop()
