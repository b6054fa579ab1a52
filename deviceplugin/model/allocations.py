"""Who holds which units: the agent's book, as values.

An `Allocation` is what one container was given, on one GPU or on several whole ones. It is born
with one half (the first `Allocate` of the container), is *open* until the other half joins, a
moment passes, or the container starts.
`AllocationBook` keeps them; it does no I/O and takes no lock, its user does both.
"""

from collections.abc import Container, Iterable
from dataclasses import dataclass, field, replace

from deviceplugin.model.concurrency import Concurrency
from libvgpu.limits import ComputeMode, Family

from .overrides import Override
from .units import Half, gpu_of, half_of, unit_name


@dataclass(frozen=True, slots=True)
class Owner:
    """A container by its names; podresources tells them."""

    namespace: str
    pod: str
    container: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.pod}/{self.container}"


@dataclass(frozen=True, slots=True)
class Allocation:
    """What one container holds.

    Attributes:
        memory_unit_bytes: of the family when it was given; it does not follow the config.
        core: names of core units the kubelet gave, sorted by number.
        memory: names of memory units the kubelet gave.
        uuid: the GPU, the first of several in `uuids`.
        implicit_units: what a default or a whole GPU uses up in addition; withdrawn from the
            kubelet.
        settled: no other half may join any more.
        refused: its other half was refused, so its pod fails; its own answer is not in flight.
        started: PreStartContainer has let it pass once.
        changed_at: when its units last changed, seconds since the epoch: to keep, to show and to
            order by. The wall clock may be set, so how long ago it was comes from `changed_s`.
        changed_s: the same on the agent's monotonic clock, 0 where an earlier agent did it.
        missing_since: since when podresources does not show it, on the monotonic clock too; 0 while
            it does.
        owner: None until podresources told.
        shim_build: build id of the library its answers mount.
        raised: units of both halves that a raise above its request uses up; withdrawn, too.
        compute: how the config last held compute on its GPU; that stays while the GPU drains. None
            where nobody noted it.
        override: what `vgpuctl set` says of it, None where nothing.
        concurrency: of its GPU when it was given, in family vgpu; like the unit, it stays.
        replicas: of its GPU, as the kubelet counts them, where it was given no units.
    """

    allocation_id: str
    family: Family
    uuid: str
    memory_unit_bytes: int
    core: tuple[str, ...] = ()
    memory: tuple[str, ...] = ()
    implicit_units: tuple[str, ...] = ()
    settled: bool = False
    refused: bool = False
    started: bool = False
    changed_at: float = 0.0
    changed_s: float = 0.0
    missing_since: float = 0.0
    owner: Owner | None = None
    shim_build: str = ""
    raised: tuple[str, ...] = ()
    override: Override | None = None
    compute: ComputeMode | None = None
    concurrency: Concurrency = Concurrency.TIME_SLICES
    replicas: tuple[str, ...] = ()

    @property
    def given(self) -> tuple[str, ...]:
        """What the kubelet gave it: units, or a replica."""
        return (*self.core, *self.memory, *self.replicas)

    @property
    def served_by_mps(self) -> bool:
        """It is of a GPU whose containers are clients of MPS; it may still have it exclusively."""
        return self.family is Family.MPS or self.concurrency is Concurrency.MPS

    def of(self, half: Half) -> tuple[str, ...]:
        """The units of one half that the kubelet gave."""
        return self.core if half is Half.CORE else self.memory

    @property
    def units(self) -> tuple[str, ...]:
        """All units it uses up."""
        return (*self.core, *self.memory, *self.implicit_units, *self.raised)

    @property
    def uuids(self) -> tuple[str, ...]:
        """Its GPUs in order, `uuid` first: several where whole GPUs were asked for."""
        first = f"{self.uuid}::"
        parts = [
            each for each in (self.core, self.memory, self.implicit_units, self.raised) if each
        ]
        # Units stand GPU by GPU, and almost always all are of one: then the ends tell.
        if all(part[0].startswith(first) and part[-1].startswith(first) for part in parts):
            return (self.uuid,)
        others = (gpu_of(unit) for unit in self.units if not unit.startswith(first))
        return tuple(dict.fromkeys((self.uuid, *others)))

    @property
    def whole(self) -> bool:
        """Both halves were given by the kubelet."""
        return bool(self.core and self.memory)

    @property
    def memory_bytes(self) -> int:
        """What its memory units are worth on all its GPUs, without a raise."""
        own = (*self.memory, *self.implicit_units)
        return self.memory_unit_bytes * sum(half_of(u) is Half.MEMORY for u in own)

    def count(self, half: Half, uuid: str) -> int:
        """Returns how many units of one half it has on one GPU, without a raise."""
        first = unit_name(uuid, half, "")
        return sum(u.startswith(first) for u in (*self.core, *self.memory, *self.implicit_units))

    def with_half(self, half: Half, units: tuple[str, ...], now_s: float) -> "Allocation":
        """Returns it with one half set now, on the monotonic clock."""
        if half is Half.CORE:
            return replace(self, core=units, changed_s=now_s)
        return replace(self, memory=units, changed_s=now_s)

    def described(self) -> str:
        """Returns whose it is, as a message names it."""
        return f"{self.owner or 'a container not yet known'} (allocation {self.allocation_id})"


@dataclass(slots=True)
class AllocationBook:
    """All allocations of the node, by allocation id.

    A unit has one holder, but for those of a plain init container: the kubelet gives them to later
    containers of the same pod again, which run when it has ended. The newest holder counts.

    Attributes:
        changes: how often who holds which units has changed; a newer state of an allocation that
            changes neither its units nor its owner is none.
    """

    allocations: dict[str, Allocation] = field(default_factory=dict)
    changes: int = 0
    _holders: dict[str, tuple[str, ...]] = field(default_factory=dict)  # unit -> ids, newest last
    _shared: set[str] = field(default_factory=set)  # units of several holders
    _on_gpu: dict[str, dict[str, None]] = field(default_factory=dict)  # GPU -> ids

    @classmethod
    def of(cls, allocations: Iterable[Allocation]) -> "AllocationBook":
        """Returns a book with these allocations, the oldest first."""
        book = cls()
        for allocation in allocations:
            book.put(allocation)
        return book

    def put(self, allocation: Allocation) -> None:
        """Enters an allocation, or its new state; which of two holders is newer stays."""
        before = self.allocations.get(allocation.allocation_id)
        self.allocations[allocation.allocation_id] = allocation
        for uuid in allocation.uuids:
            self._on_gpu.setdefault(uuid, {})[allocation.allocation_id] = None
        units = dict.fromkeys(allocation.units)
        units.update(dict.fromkeys(allocation.replicas))
        had = frozenset((*before.units, *before.replicas)) if before else frozenset()
        if before is None or before.owner != allocation.owner or had != units.keys():
            self.changes += 1
        for unit in had.difference(units):
            self._leave(unit, allocation.allocation_id)
        for unit in units:
            if unit not in had:
                ids = self._holders.get(unit, ())
                self._holders[unit] = (*ids, allocation.allocation_id)
                if ids:
                    self._shared.add(unit)

    def drop(self, allocation_id: str) -> None:
        """Takes an allocation out; its units are free, or those of who held them before."""
        allocation = self.allocations.pop(allocation_id, None)
        if allocation is None:
            return
        self.changes += 1
        for uuid in allocation.uuids:
            self._on_gpu[uuid].pop(allocation_id, None)
        for unit in (*allocation.units, *allocation.replicas):
            self._leave(unit, allocation_id)

    def _leave(self, unit: str, allocation_id: str) -> None:
        left = tuple(each for each in self._holders.get(unit, ()) if each != allocation_id)
        if len(left) < 2:
            self._shared.discard(unit)
        if left:
            self._holders[unit] = left
        else:
            self._holders.pop(unit, None)

    def holder(self, unit: str) -> Allocation | None:
        """Returns who has a unit (given or implicit), the newest of several."""
        ids = self._holders.get(unit)
        return self.allocations[ids[-1]] if ids else None

    def holders(self, unit: str) -> list[Allocation]:
        """Returns all who hold a unit, the newest last."""
        return [self.allocations[each] for each in self._holders.get(unit, ())]

    def shared_units(self) -> dict[str, tuple[str, ...]]:
        """Returns the units that several allocations hold: their ids, the newest last."""
        return {unit: self._holders[unit] for unit in self._shared}

    def is_free(self, unit: str) -> bool:
        """Returns whether no allocation has a unit."""
        return unit not in self._holders

    def free(self, units: frozenset[str]) -> set[str]:
        """Returns those of ``units`` that no allocation has."""
        return set(units.difference(self._holders))

    def seem_free(self, units: frozenset[str], uuid: str) -> set[str]:
        """Returns those of ``units`` that nobody holds whom podresources does not miss already.

        Args:
            units: all of one GPU.
            uuid: that GPU.
        """
        kept = (h.units for h in self.on_gpu(uuid) if not h.missing_since)
        return set(units.difference(*kept))

    def has_passed_on(self, allocation: Allocation, ended: Container[str] = ()) -> bool:
        """Returns whether a later container has some of its units: it is an init container's.

        The kubelet must have given them. An earlier one that asked for core alone has implicit
        memory units of a later one, which does not run yet.

        Args:
            ended: allocation ids of allocations that do not count any more.
        """
        if not self._shared:
            return False
        for unit in self._shared.intersection((*allocation.units, *allocation.replicas)):
            ids = self._holders[unit]
            later = ids[ids.index(allocation.allocation_id) + 1 :]
            if any(
                each not in ended and unit not in self.allocations[each].implicit_units
                for each in later
            ):
                return True
        return False

    def sharing_with(self, allocation: Allocation) -> list[Allocation]:
        """Returns the other holders of its units: of the same pod (see `has_passed_on`)."""
        ids = {
            each for u in self._shared.intersection(allocation.units) for each in self._holders[u]
        }
        return [self.allocations[each] for each in ids if each != allocation.allocation_id]

    def on_gpu(self, uuid: str) -> list[Allocation]:
        """The allocations on one GPU."""
        return [self.allocations[each] for each in self._on_gpu.get(uuid, ())]

    def withdrawn(self) -> set[str]:
        """Units that no container was given but a default or a raise uses up: Unhealthy."""
        implicit_units = {
            u for h in self.allocations.values() for u in (*h.implicit_units, *h.raised)
        }
        given = {unit for h in self.allocations.values() for unit in (*h.core, *h.memory)}
        return implicit_units - given  # a held unit is never withdrawn
