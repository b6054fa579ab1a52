"""What the watch has found that the shim cannot see, for log, metrics and ``/v1/state``.

Each finding is told once, when it is new. A tenant may make new ones as fast as it starts
processes, so of one subject (an allocation, or a GPU for processes of nobody) one is told in
`PAUSE_S`, the next after that if it still stands. One subject's flood hides nothing of another.
"""

from collections import Counter
from collections.abc import Collection, Hashable
from dataclasses import dataclass, field

from deviceplugin.model.allocations import Owner
from deviceplugin.pages.state import (
    ReportedCharge,
    ReportedDamage,
    ReportedForgery,
    ReportedProcess,
    ReportedWatch,
)
from libvgpu.sizes import format_size

PAUSE_S = 10.0
#: So many of each kind stand in ``/v1/state``.
MOST_SHOWN = 32


@dataclass(frozen=True, slots=True)
class SeenProcess:
    """A process on a GPU; ``memory_bytes`` is None where NVML cannot say.

    Attributes:
        allocation_id: empty where it belongs to none.
        owner: whose container it is in; None where that is not known.
        has_slice: its container has a slice of this GPU.
        how: how it gets around its slice.
    """

    gpu: str
    pid: int
    start_time_ticks: int
    command: str
    memory_bytes: int | None
    allocation_id: str = ""
    owner: Owner | None = None
    has_slice: bool = False
    how: str = "without the shim"

    @property
    def key(self) -> Hashable:
        """Its name for all time, on this GPU."""
        return self.gpu, self.pid, self.start_time_ticks

    @property
    def subject(self) -> str:
        """Whom it is told of."""
        return self.allocation_id or self.gpu

    def described(self) -> str:
        """Returns how an Event speaks of it."""
        size = "memory" if self.memory_bytes is None else format_size(self.memory_bytes)
        return f"process {self.pid} ({self.command}) uses {size} of GPU {self.gpu}"

    def shown(self) -> ReportedProcess:
        """Returns it as ``/v1/state`` has it."""
        return ReportedProcess(
            gpu=self.gpu,
            pid=self.pid,
            command=self.command,
            memory_bytes=self.memory_bytes,
            allocation=self.allocation_id,
            owner=str(self.owner or "unknown") if self.allocation_id else "",
            how=self.how if self.allocation_id else "",
        )


@dataclass(frozen=True, slots=True)
class DamagedUsage:
    """A container that has made its `usage` unreadable.

    Attributes:
        owner: whose container it is; None where that is not known.
        what: it did, as the end of a sentence.
    """

    allocation_id: str
    owner: Owner | None
    what: str

    @property
    def key(self) -> Hashable:
        """Its name among the findings."""
        return "damaged", self.allocation_id

    def shown(self) -> ReportedDamage:
        """Returns it as ``/v1/state`` has it."""
        return ReportedDamage(
            allocation=self.allocation_id,
            owner=str(self.owner or "unknown"),
            problem=f"the container {self.what}",
        )


@dataclass(frozen=True, slots=True)
class ChargedMemory:
    """What a container holds of a GPU that its ledger does not know, and is charged for."""

    gpu: str
    allocation_id: str
    owner: Owner | None
    memory_bytes: int

    def shown(self) -> ReportedCharge:
        """Returns it as ``/v1/state`` has it."""
        owner = str(self.owner or "unknown")
        return ReportedCharge(self.gpu, self.allocation_id, owner, self.memory_bytes)


@dataclass(frozen=True, slots=True)
class ForgedTime:
    """A container that takes more of a GPU's time than its share, and whose books hide it."""

    gpu: str
    allocation_id: str
    owner: Owner | None
    share_percent: int

    @property
    def key(self) -> Hashable:
        """Its name among the findings."""
        return "time", self.gpu, self.allocation_id

    def shown(self) -> ReportedForgery:
        """Returns it as ``/v1/state`` has it."""
        owner = str(self.owner or "unknown")
        return ReportedForgery(self.gpu, self.allocation_id, owner, self.share_percent)


@dataclass(frozen=True, slots=True)
class WatchFindings:
    """What stands at present; replaced whole.

    Attributes:
        problem: why nothing can be seen, as a sentence; empty where it can.
        policy: what is done about a process that bypasses its slice.
        bypassing: processes that a container's ledger does not know, or by which it holds more
            than its slice.
        foreign: processes that belong to no allocation.
        damaged: containers that have made their `usage` unreadable.
        charged: containers that hold unaccounted memory.
        forged: containers that take more of a GPU's time than their books say.
        ended: how many processes were ended since the agent started.
    """

    problem: str = ""
    policy: str = "report"
    bypassing: tuple[SeenProcess, ...] = ()
    foreign: tuple[SeenProcess, ...] = ()
    damaged: tuple[DamagedUsage, ...] = ()
    charged: tuple[ChargedMemory, ...] = ()
    forged: tuple[ForgedTime, ...] = ()
    ended: int = 0

    def outside_bytes(self, gpu: str) -> int:
        """Returns what processes hold of a GPU of which they have no slice."""
        return sum(
            each.memory_bytes or 0
            for each in (*self.foreign, *self.bypassing)
            if each.gpu == gpu and not each.has_slice
        )

    def counts(self) -> tuple[Counter[str], Counter[tuple[str, str]]]:
        """Returns how many are foreign, by GPU, and bypass, by allocation and GPU."""
        return (
            Counter(each.gpu for each in self.foreign),
            Counter((each.allocation_id, each.gpu) for each in self.bypassing),
        )

    def shown(self) -> ReportedWatch:
        """Returns them as ``/v1/state`` has them."""
        return ReportedWatch(
            problem=self.problem,
            policy=self.policy,
            bypassing_count=len(self.bypassing),
            bypassing=tuple(each.shown() for each in self.bypassing[:MOST_SHOWN]),
            foreign_count=len(self.foreign),
            foreign=tuple(each.shown() for each in self.foreign[:MOST_SHOWN]),
            damaged_count=len(self.damaged),
            damaged=tuple(each.shown() for each in self.damaged[:MOST_SHOWN]),
            charged_count=len(self.charged),
            charged=tuple(each.shown() for each in self.charged[:MOST_SHOWN]),
            forged_count=len(self.forged),
            forged=tuple(each.shown() for each in self.forged[:MOST_SHOWN]),
            ended_count=self.ended,
        )


@dataclass(slots=True)
class Ration:
    """Says what is to be told now; used by one thread."""

    _told: set[Hashable] = field(default_factory=set)
    _last_s: dict[str, float] = field(default_factory=dict)

    def may_tell(self, key: Hashable, subject: str, now_s: float) -> bool:
        """Returns whether a finding that stands is to be told now.

        Args:
            key: of the finding.
            subject: whom it is of.
        """
        if key in self._told or now_s - self._last_s.get(subject, -PAUSE_S) < PAUSE_S:
            return False
        self._told.add(key)
        self._last_s[subject] = now_s
        return True

    def keep(self, keys: Collection[Hashable], now_s: float) -> None:
        """Forgets findings that are over, and subjects whose pause is."""
        self._told.intersection_update(keys)
        for subject in [s for s, at_s in self._last_s.items() if now_s - at_s >= PAUSE_S]:
            del self._last_s[subject]
