"""The watch over GPU time: asks NVML, keeps the debts of `gpu_time`, and has arbiters withhold.

Called in the watch's thread: `follow` after each of its looks, `look` then and, while a GPU is
suspect, every `LOOK_CLOSELY_S`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from libvgpu.arbitration import ArbiterCounters

from .comparison import ComparedAllocation
from .gpu_time import Due, Key, TimeDebts, TimeSample, due_part
from .report import ForgedTime

#: A container that has forged its books has nothing for so long. What its neighbours lost until it
#: was caught they cannot catch up, so it is to be little of their time.
_NAMED_S = 30.0
_LEAST_PART = 0.05

Read = Callable[[Mapping[str, int]], Mapping[str, list[TimeSample]]]


class Arbiters(Protocol):
    """The arbiters of the node's GPUs; for any thread."""

    def counters(self) -> Mapping[str, ArbiterCounters]:
        """Returns what each GPU's arbiter has counted."""
        ...

    def withhold(self, uuid: str, directory: Path, seconds: float) -> bool:
        """Gives a container nothing for so long; returns whether it asks in vain already."""
        ...


@dataclass(frozen=True, slots=True)
class _Named:
    found: ForgedTime
    until_s: float


class TimeWatch:
    """Sees to it that nobody has more of a shared GPU's time than its share.

    Attributes:
        forged: who is withheld for forged books.
        is_suspicious: whether to look again every `LOOK_CLOSELY_S`.
    """

    def __init__(self, arbiters: Arbiters, read: Read, clock: Callable[[], float]) -> None:
        """Looks at nothing yet.

        Args:
            arbiters: who gives GPU time.
            read: returns the samples of GPUs that are newer than a moment of each.
            clock: seconds, never back.
        """
        self.forged: tuple[ForgedTime, ...] = ()
        self.is_suspicious = False
        self._arbiters, self._read, self._clock = arbiters, read, clock
        self._debts = TimeDebts()
        self._holders: Mapping[str, Mapping[int, str]] = {}
        self._watched: Mapping[str, ComparedAllocation] = {}
        self._counters: Mapping[str, ArbiterCounters] = {}
        self._named: dict[Key, _Named] = {}

    def follow(
        self,
        watched: Mapping[str, ComparedAllocation],
        holders: Mapping[str, Mapping[int, str]],
    ) -> None:
        """Takes what the watch has found.

        Args:
            watched: the agent's allocations, by id.
            holders: for each GPU the allocation of each process on it that belongs to one.
        """
        self._watched = watched
        self._holders = {gpu: pids for gpu, pids in holders.items() if len(set(pids.values())) > 1}
        keys = {(a, d.uuid) for a, each in watched.items() for d in each.limits.devices}
        self._debts.keep(self._holders, keys)
        self._named = {
            key: each
            for key, each in self._named.items()
            if key in keys and key[1] in self._holders
        }

    def look(self) -> None:
        """Looks at all shared GPUs once.

        Raises:
            VgpuError: NVML does not answer.
        """
        gpus = {gpu: self._debts.seen_us(gpu) for gpu in self._holders}
        samples = self._read(gpus) if gpus else {}
        before, self._counters = self._counters, self._arbiters.counters() if samples else {}
        now_s = self._clock()
        for gpu, found in samples.items():
            due = {
                allocation_id: due_part(
                    device, each.directory, before.get(gpu), self._counters.get(gpu)
                )
                for allocation_id, each in self._watched.items()
                for device in each.limits.devices
                if device.uuid == gpu
            }
            self._debts.note(gpu, found, self._holders[gpu], due, now_s)
            self._withhold(gpu, due, now_s)
        self.is_suspicious = any(self._debts.is_suspect(gpu, now_s) for gpu in samples)

    def _withhold(self, gpu: str, due: Mapping[str, Due | None], now_s: float) -> None:
        for allocation_id, share in due.items():
            key, each = (allocation_id, gpu), self._watched[allocation_id]
            owes_s = self._debts.owed_s[key] if key in self._debts.withheld_s else 0.0
            named_s = self._named[key].until_s - now_s if key in self._named else 0.0
            if share is None or (owes_s <= 0 and named_s <= 0):
                self._named.pop(key, None)
                continue
            seconds = max(owes_s / max(share.part, _LEAST_PART), named_s)
            asks = self._arbiters.withhold(gpu, each.directory, seconds)
            if asks and key in self._debts.gross and self._debts.owes_most(key):
                found = ForgedTime(
                    gpu, allocation_id, each.allocation.owner, round(100 * share.part)
                )
                self._named.setdefault(key, _Named(found, now_s + _NAMED_S))
        self.forged = tuple(each.found for each in self._named.values())
