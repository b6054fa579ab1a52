"""Who holds which units: the agent's book, as values.

A `Holding` is what one container holds on one GPU. It is born with one half (the first `Allocate`
of the container), is *open* until the other half joins, a moment passes, or the container starts.
`Book` keeps them; it does no I/O and takes no lock, its user does both.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from libvgpu.limits import Family

from .units import Half


@dataclass(frozen=True, slots=True)
class Owner:
    """A container by its names; podresources tells them."""

    namespace: str
    pod: str
    container: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.pod}/{self.container}"


@dataclass(frozen=True, slots=True)
class Holding:
    """What one container holds on one GPU.

    Attributes:
        memory_unit_bytes: of the family when it was given; it does not follow the config.
        core: names of core units the kubelet gave, sorted by number.
        memory: names of memory units the kubelet gave.
        borrowed: memory units of a container that asked for core alone; withdrawn from the kubelet.
        settled: no other half may join any more.
        refused: its other half was refused, so its pod fails; its own answer is not in flight.
        started: PreStartContainer has let it pass once.
        changed_at: when its units last changed, seconds since the epoch.
        missing_since: since when podresources does not show it, 0 while it does.
        owner: None until podresources told.
        shim_build: build id of the library its answers mount.
    """

    allocation_id: str
    family: Family
    uuid: str
    memory_unit_bytes: int
    core: tuple[str, ...] = ()
    memory: tuple[str, ...] = ()
    borrowed: tuple[str, ...] = ()
    settled: bool = False
    refused: bool = False
    started: bool = False
    changed_at: float = 0.0
    missing_since: float = 0.0
    owner: Owner | None = None
    shim_build: str = ""

    def of(self, half: Half) -> tuple[str, ...]:
        """The units of one half that the kubelet gave."""
        return self.core if half is Half.CORE else self.memory

    @property
    def whole(self) -> bool:
        """Both halves were given by the kubelet."""
        return bool(self.core and self.memory)

    @property
    def memory_bytes(self) -> int:
        """What its memory units are worth."""
        return len(self.memory or self.borrowed) * self.memory_unit_bytes

    def with_half(self, half: Half, units: tuple[str, ...], now: float) -> "Holding":
        """Returns it with one half set."""
        if half is Half.CORE:
            return replace(self, core=units, changed_at=now)
        return replace(self, memory=units, changed_at=now)

    def described(self) -> str:
        """Returns whose it is, in words."""
        return f"{self.owner or 'a container not yet known'} (allocation {self.allocation_id})"


@dataclass(slots=True)
class Book:
    """All holdings of the node, by allocation id."""

    holdings: dict[str, Holding] = field(default_factory=dict)
    _holder: dict[str, str] = field(default_factory=dict)  # unit -> allocation id

    @classmethod
    def of(cls, holdings: Iterable[Holding]) -> "Book":
        """Returns a book with these holdings."""
        book = cls()
        for holding in holdings:
            book.put(holding)
        return book

    def put(self, holding: Holding) -> None:
        """Enters a holding, or its new state."""
        self.drop(holding.allocation_id)
        self.holdings[holding.allocation_id] = holding
        for unit in (*holding.core, *holding.memory, *holding.borrowed):
            self._holder[unit] = holding.allocation_id

    def drop(self, allocation_id: str) -> None:
        """Takes a holding out; its units are free."""
        holding = self.holdings.pop(allocation_id, None)
        if holding is not None:
            for unit in (*holding.core, *holding.memory, *holding.borrowed):
                self._holder.pop(unit, None)

    def holder(self, unit: str) -> Holding | None:
        """Returns who holds (or borrowed) a unit."""
        allocation_id = self._holder.get(unit)
        return None if allocation_id is None else self.holdings[allocation_id]

    def taken(self) -> Mapping[str, str]:
        """All units that are held or borrowed, with the allocation that has them."""
        return self._holder

    def on_gpu(self, uuid: str) -> list[Holding]:
        """The holdings on one GPU."""
        return [h for h in self.holdings.values() if h.uuid == uuid]

    def withdrawn(self) -> set[str]:
        """Units that no container was given but a default uses up: reported Unhealthy."""
        return {unit for h in self.holdings.values() for unit in h.borrowed}
