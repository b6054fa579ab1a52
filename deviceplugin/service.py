"""The agent's core: answers for the kubelet from local state, one lock, no gRPC.

Order of an `Allocate`: decide (pure, `allocation`), make the container's files, save the
checkpoint, enter the book, answer. Whatever fails leaves the book as it was; files of a holding
that never reached the checkpoint are swept at the next start.

podresources (`lister`) is asked in `prefer`, in `pre_start` and in `reconcile`, never while an
`allocate` is in flight, since a listing may make the kubelet forget the units of that call; a
listing that an `allocate` overtook is thrown away. It is asked outside the lock: the kubelet may
call us meanwhile.

`revision` rises whenever what is advertised changes; `wait_for_change` is how the plugin servers
follow it.
"""

import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from libvgpu.errors import AllocationRefused, VgpuError
from libvgpu.limits import ContainerLimits, Family

from . import allocation, tracking
from .checkpoint import Checkpoint
from .config import AgentConfig
from .holdings import Book, Holding
from .layout import Layout
from .limits import asked_limits, effective_limits, matching_rule, pending
from .log import LOGGER, event
from .slices import Answer, SliceStore
from .units import Half, resource_name

_LOOK_TRIES = 5
_LOOK_PAUSE_S = 0.02

Lister = Callable[[], Sequence[tracking.Listed]]


@dataclass(frozen=True, slots=True)
class Unit:
    """One unit as the kubelet is told of it."""

    name: str
    healthy: bool
    numa_node: int | None


class SliceService:
    """Everything the kubelet may ask, for both families."""

    def __init__(
        self,
        layout: Layout,
        config: AgentConfig,
        store: SliceStore,
        checkpoint: Checkpoint,
        lister: Lister,
        wait_for_mps: Callable[[str], None] = lambda uuid: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Takes over what the checkpoint says.

        Args:
            lister: lists podresources; raises VgpuError where it cannot.
            wait_for_mps: returns once a GPU's MPS daemon answers; raises VgpuError if it does not.
            clock: seconds since the epoch.
        """
        self.layout = layout
        self._rules = config.rules
        self._store = store
        self._checkpoint = checkpoint
        self._lister = lister
        self._wait_for_mps = wait_for_mps
        self._clock = clock
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._revision = 0
        self._allocating = 0
        self._allocations_done = 0
        loaded = checkpoint.load()
        if loaded.problem:
            event(logging.ERROR, loaded.problem)
        self._book = Book.of(loaded.holdings)
        if loaded.trusted:
            for gone in store.sweep(set(self._book.holdings)):
                event(logging.INFO, "removed the files of an allocation that has ended", id=gone)
        for holding in loaded.holdings:
            self._write_limits(holding)

    # ---- what is advertised ------------------------------------------------------------------

    def units(self, family: Family, half: Half) -> tuple[int, list[Unit]]:
        """Returns the current revision and every unit of one resource."""
        with self._lock:
            blocked = allocation.withdrawn(self.layout, self._book)
            return self._revision, [
                Unit(name, name not in blocked, shared.gpu.numa_node)
                for name, shared in allocation.advertised(self.layout, family, half)
            ]

    def wait_for_change(self, revision: int, timeout_s: float, stopped: Callable[[], bool]) -> bool:
        """Waits until what is advertised is newer than ``revision``, the time is over, or `wake`
        is called and ``stopped`` holds; returns whether it is newer.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._revision != revision or stopped(), timeout_s)
            return self._revision != revision

    def wake(self) -> None:
        """Makes everyone in `wait_for_change` look whether to stop."""
        with self._changed:
            self._changed.notify_all()

    # ---- what the kubelet asks ---------------------------------------------------------------

    def prefer(
        self,
        family: Family,
        half: Half,
        available: Sequence[str],
        must_include: Sequence[str],
        count: int,
    ) -> list[str]:
        """Answers GetPreferredAllocation (see `allocation.prefer`)."""
        with self._lock:
            partner = allocation.open_holding(self._book, family, half, self._clock())
            contested = any(self._book.holder(unit) is not None for unit in available)
        if partner is not None or contested:
            self._look(frozenset(available))
        if contested and self._doubtful(available):
            time.sleep(_LOOK_PAUSE_S)
            self._look(frozenset(available))
        with self._lock, self._settling_on_refusal(family, half):
            return allocation.prefer(
                self.layout, self._book, family, half, available, must_include, count, self._clock()
            )

    def allocate(self, family: Family, half: Half, units: Sequence[str]) -> Answer:
        """Answers Allocate for one container (see `allocation.allocate`)."""
        with self._lock:
            self._allocating += 1
        try:
            with self._lock, self._settling_on_refusal(family, half):
                return self._allocate(family, half, units)
        finally:
            with self._lock:
                self._allocating -= 1
                self._allocations_done += 1

    def _allocate(self, family: Family, half: Half, units: Sequence[str]) -> Answer:
        now = self._clock()
        new_id = uuid.uuid4().hex[:12]
        for settled in allocation.settle_before(self._book, family, half):
            self._book.put(settled)
        holding = allocation.allocate(self.layout, self._book, family, half, units, now, new_id)
        holding = replace(holding, shim_build=holding.shim_build or self._store.build)
        limits = self._limits(holding)
        before = self._book.holdings.get(holding.allocation_id)
        try:
            self._store.put(holding, limits)
            self._book.put(holding)
            self._save()
        except VgpuError as error:
            self._book.drop(holding.allocation_id)
            if before is None:
                self._store.remove(holding.allocation_id)
            else:
                self._book.put(before)
                self._write_limits(before)
            raise AllocationRefused(
                f"{resource_name(self.layout.resource_domain, family, half)}: {error.message}"
            ) from error
        event(
            logging.INFO, "allocated", resource=f"{family.name.lower()}-{half}", units=len(units),
            gpu=holding.uuid, allocation=holding.allocation_id, whole=holding.whole,
        )  # fmt: skip
        return self._store.answer(holding, half, limits)

    def pre_start(self, family: Family, half: Half, units: Sequence[str]) -> None:
        """Answers PreStartContainer: the last gate before the container's processes start.

        Raises:
            VgpuError: in one sentence, why it must not start.
        """
        wanted = frozenset(units)
        listing = self._look_patiently()
        with self._lock:
            holding = next(
                (h for u in units if (h := self._book.holder(u)) and set(h.of(half)) == wanted),
                None,
            )
            if holding is None:
                raise AllocationRefused(
                    f"the agent has no record of these {len(units)} units of "
                    f"{resource_name(self.layout.resource_domain, family, half)}; "
                    "delete the pod, so that it is admitted anew"
                )
            if listing is not None:
                problem = tracking.conflict(self._book, holding, listing)
                if problem is not None:
                    raise AllocationRefused(problem)
            done = allocation.complete_start(self.layout, self._book, holding)
            done = replace(done, started=True)
            self._store.put_back(done, self._limits(done))
            if done != holding:
                self._book.put(done)
                self._save()
                if done.borrowed != holding.borrowed:
                    self._announce()
        if family is Family.MPS:
            self._wait_for_mps(holding.uuid)
        event(logging.INFO, "container may start", allocation=done.allocation_id,
              owner=done.owner or "unknown", half=half)  # fmt: skip

    # ---- what happens beside -----------------------------------------------------------------

    def reconcile(self) -> None:
        """Asks podresources whose the holdings are and frees those that have ended."""
        with self._lock:
            if not self._book.holdings:
                return
        self._look()

    def apply_rules(self, config: AgentConfig) -> None:
        """Puts the ``limits`` of a new config into force in all containers."""
        with self._lock:
            self._rules = config.rules
            for holding in self._book.holdings.values():
                self._write_limits(holding)

    def holdings(self) -> list[tuple[Holding, ContainerLimits]]:
        """Returns all holdings with their limits in force."""
        with self._lock:
            return [(h, self._limits(h)) for h in self._book.holdings.values()]

    # ---- parts -------------------------------------------------------------------------------

    def _look(self, offered: frozenset[str] = frozenset()) -> Sequence[tracking.Listed] | None:
        """Lists podresources and acts on it; None where that could not or must not be done."""
        with self._lock:
            if self._allocating:
                return None
            done = self._allocations_done
        try:
            listing = self._lister()
        except VgpuError as error:
            LOGGER.debug("podresources: %s", error.message)
            return None
        with self._lock:
            if self._allocating or self._allocations_done != done:
                return None
            found = tracking.examine(
                self._book, listing, self._clock(), self._store.running, offered
            )
            for holding in found.changed:
                self._book.put(holding)
            for holding in found.ended:
                self._book.drop(holding.allocation_id)
                self._store.remove(holding.allocation_id)
                event(logging.INFO, "freed: its container has ended", gpu=holding.uuid,
                      allocation=holding.allocation_id, owner=holding.owner or "unknown",
                      core=len(holding.core), memory=len(holding.memory))  # fmt: skip
            if offered:
                self._settle_unlisted(listing)
            for holding in found.identified:
                self._write_limits(holding)
            if found.ended or found.identified:
                self._save()
            if found.ended:
                self._announce()
            return listing

    def _look_patiently(self) -> Sequence[tracking.Listed] | None:
        """Like `_look`, but tries again when an `allocate` of another pod came between."""
        for _ in range(_LOOK_TRIES):
            with self._lock:
                done = self._allocations_done
            listing = self._look()
            with self._lock:
                overtaken = self._allocating > 0 or self._allocations_done != done
            if listing is not None or not overtaken:
                return listing
            time.sleep(_LOOK_PAUSE_S)
        return None

    def _doubtful(self, offered: Sequence[str]) -> bool:
        """Returns whether a holding that was not listed has units that are offered."""
        with self._lock:
            holders = (self._book.holder(unit) for unit in offered)
            return any(h is not None and h.missing_since for h in holders)

    def _settle_unlisted(self, listing: Sequence[tracking.Listed]) -> None:
        """Within GetPreferredAllocation: an open holding that is not listed is nobody's partner.

        The kubelet records the first half before it asks for the second, so the asking container's
        own holding is always listed.
        """
        listed = frozenset().union(*(c.units for c in listing))
        for holding in list(self._book.holdings.values()):
            if not holding.settled and listed.isdisjoint((*holding.core, *holding.memory)):
                self._book.put(replace(holding, settled=True))

    @contextmanager
    def _settling_on_refusal(self, family: Family, half: Half) -> Iterator[None]:
        """A refusal fails the pod, so what waited for this half waits no longer."""
        try:
            yield
        except AllocationRefused:
            partner = allocation.open_holding(self._book, family, half, self._clock())
            if partner is not None:
                self._book.put(replace(partner, settled=True, refused=True))
            raise

    def _limits(self, holding: Holding) -> ContainerLimits:
        shared = next((g for g in self.layout.gpus if g.gpu.uuid == holding.uuid), None)
        mode = shared.compute if shared else allocation.DEFAULT_COMPUTE
        context_bytes = shared.gpu.context_bytes if shared else 0
        asked = asked_limits(holding, mode, context_bytes)
        return effective_limits(asked, matching_rule(self._rules, holding.owner))

    def _write_limits(self, holding: Holding) -> None:
        limits = self._limits(holding)
        try:
            before = self._store.put(holding, limits)
        except VgpuError as error:
            event(logging.ERROR, "limits cannot be written", allocation=holding.allocation_id,
                  reason=error.message)  # fmt: skip
            return
        if before is None:
            return
        for old, new in zip(before.devices, limits.devices, strict=True):
            event(
                logging.INFO, "limits changed", allocation=holding.allocation_id,
                owner=holding.owner or "unknown", gpu=new.uuid,
                memory_bytes=f"{old.memory_limit_bytes}->{new.memory_limit_bytes}",
                core_percent=f"{old.core_percent}->{new.core_percent}",
                pending="; ".join(pending(before, limits)) or "nothing",
            )  # fmt: skip

    def _save(self) -> None:
        self._checkpoint.save(self._book.holdings.values())

    def _announce(self) -> None:
        self._revision += 1
        self._changed.notify_all()
