"""Brings the limits in force into the containers' files: request, rules, `vgpuctl set`, raises.

What an allocation may use is resolved once (`limits.resolver`) and kept until an input of it
changes: its units, its owner or that owner's labels, what was set, the rules, how its GPU is
shared, or what it is charged outside its ledger. Files, metrics, ``/v1/state`` and the process
watch all get the kept result.

A container can keep `limits` busy by a lease that it took while no agent ran. Then what was written
before holds on, and the new limits are written as soon as the kernel has ended the lease.

Only where rules, labels or a `set` are new may a raise take further units out of the GPU; they are
withdrawn from the kubelet. At any other time an allocation has the units it took.

Called under the agent's lock; `set_override` and `write_late` take it.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from deviceplugin.log import event
from deviceplugin.model.allocations import Allocation
from deviceplugin.model.limit_rules import LimitRule
from deviceplugin.model.notices import EventReason, container_notice
from deviceplugin.model.overrides import LimitChange, Override
from deviceplugin.policy.limits.asked import asked_on
from deviceplugin.policy.limits.changes import change_text, pending
from deviceplugin.policy.limits.learnt_sizes import LearntSizes
from deviceplugin.policy.limits.resolver import ResolvedLimits, resolve
from deviceplugin.policy.limits.rules import (
    RaiseRoom,
    matching_rule,
    not_permitted,
    room_on,
    taken_by,
    with_units,
)
from deviceplugin.store.node_state import NodeState
from deviceplugin.store.slice_files import SliceStore
from libvgpu.errors import AllocationRefused, RegionBusyError, UnknownAllocation, VgpuError

#: Tells the labels of an allocation's pod, None where nobody knows them.
LabelsOf = Callable[[str], Mapping[str, str] | None]


def no_labels(allocation_id: str) -> None:
    """Knows no labels of any pod."""


@dataclass(slots=True)
class _Kept:
    """A result and what it was made from."""

    inputs: tuple[object, ...]
    resolved: ResolvedLimits


class Enforcement:
    """What every allocation may use, and its way into the files."""

    def __init__(
        self,
        state: NodeState,
        store: SliceStore,
        rules: Sequence[LimitRule],
        labels: LabelsOf = no_labels,
        learnt: LearntSizes | None = None,
    ) -> None:
        """Has resolved nothing yet.

        Args:
            learnt: sizes that containers measured, for allocations that are resolved from now on.
        """
        self._state, self._store, self._labels = state, store, labels
        self._learnt = learnt or LearntSizes()
        self.rules = rules
        self._kept: dict[str, _Kept] = {}
        self._unaccounted: dict[str, Mapping[str, int]] = {}  # bytes by GPU, by allocation id
        self._late: set[str] = set()  # allocations whose `limits` could not be written

    def resolved(self, allocation: Allocation, room: RaiseRoom | None = None) -> ResolvedLimits:
        """Returns what an allocation may use now, and where each value comes from.

        Args:
            room: how far it may rise now; without it by the units that it has, and only if an
                input has changed.
        """
        inputs = self._inputs(allocation)
        kept = self._kept.get(allocation.allocation_id)
        if kept is None or kept.inputs != inputs or room is not None:
            found = resolve(
                allocation,
                asked_on(self._state.layout, allocation, self._learnt),
                matching_rule(self.rules, allocation.owner, self._labels(allocation.allocation_id)),
                room or taken_by(allocation),
                self._charged(allocation.allocation_id),
            )
            self._kept[allocation.allocation_id] = kept = _Kept(inputs, found)
        return kept.resolved

    def forget(self, allocation_ids: Iterable[str]) -> None:
        """Drops what is kept of allocations that have ended."""
        for allocation_id in allocation_ids:
            self._kept.pop(allocation_id, None)
            self._unaccounted.pop(allocation_id, None)
            self._late.discard(allocation_id)

    def write_late(self) -> None:
        """Puts limits into force that could not be written before."""
        with self._state.lock:
            for allocation_id in sorted(self._late):
                allocation = self._state.book.allocations.get(allocation_id)
                if allocation is None:
                    self._late.discard(allocation_id)
                else:
                    self.write(allocation)

    def note_late(self, allocation: Allocation, reason: str) -> None:
        """Has limits written later, since the container keeps the file busy."""
        if allocation.allocation_id in self._late:
            return
        self._late.add(allocation.allocation_id)
        text = (
            "one of its processes has a lease on the file of its limits, which no program needs: "
            "new limits hold when the kernel has ended it, in less than a minute; until then those "
            "of before do"
        )
        event(
            logging.WARNING,
            "a container keeps its limits file busy",
            notice=container_notice(EventReason.LIMITS_KEPT_BUSY, text, allocation.owner),
            allocation=allocation.allocation_id,
            owner=allocation.owner or "unknown",
            reason=reason,
        )

    def set_unaccounted(self, charges: Mapping[str, Mapping[str, int]]) -> None:
        """Charges allocations with what they hold outside their ledgers; 0 takes it back.

        Args:
            charges: bytes by GPU, by allocation id; what is not named stays. Allocations that have
                ended meanwhile are left out.
        """
        allocations = self._state.book.allocations
        for allocation_id, charge in charges.items():
            if allocation_id in allocations:
                charged = {**self._charged(allocation_id), **charge}
                self._unaccounted[allocation_id] = charged
                self.write(allocations[allocation_id])

    def follow_rules(self, allocations: Sequence[Allocation]) -> None:
        """Puts the rules into force in ``allocations``; what one gives up another may rise by."""
        book, changed = self._state.book, {}
        fitted = [(allocation, *self._fitted(allocation)) for allocation in allocations]
        for old, new, _ in fitted:
            if len(new.raised) < len(old.raised):
                book.put(new)
                changed[new.allocation_id] = new
        for old, new, resolved in fitted:
            if len(new.raised) > len(old.raised) or resolved.refusal is not None:
                new, resolved = self._fitted(book.allocations[old.allocation_id])
                if new.raised != old.raised:
                    changed[new.allocation_id] = new
                book.put(new)
            if resolved.refusal is not None:
                event(
                    logging.WARNING,
                    "raise refused",
                    notice=container_notice(EventReason.RAISE_REFUSED, resolved.refusal, old.owner),
                    allocation=old.allocation_id,
                    owner=old.owner or "unknown",
                    reason=resolved.refusal,
                )
            self.write(book.allocations[old.allocation_id])
        if changed:
            self._state.commit(changed.values())
            self._state.announce()

    def set_override(self, allocation_id: str, override: Override | None) -> LimitChange:
        """Puts values into force for one container, until they are taken back or it ends.

        Args:
            override: what it leaves out stays as it was set before; None takes all back.

        Raises:
            UnknownAllocation: there is no such allocation.
            AllocationRefused: it may not be raised so far, and nothing has changed.
            VgpuError: it cannot be written.
        """
        with self._state.lock:
            allocation = self._state.book.allocations.get(allocation_id)
            if allocation is None:
                raise UnknownAllocation(f"allocation {allocation_id} does not exist (any more)")
            before, wanted = self.resolved(allocation), None
            if override is not None:
                who = allocation.described()
                problem = not_permitted(before.asked, before.rule, override, who)
                if problem is not None:
                    raise AllocationRefused(problem)
                wanted = override.over(allocation.override)
            new, after = self._fitted(replace(allocation, override=wanted))
            problem = after.refusal_of(override)
            if problem is not None:
                raise AllocationRefused(problem)
            self._state.commit([new])
            self.write(new)
            if new.raised != allocation.raised:
                self._state.announce()
            owner = str(allocation.owner) if allocation.owner else ""
            return LimitChange(owner, before.limits, after.limits)

    def write(self, allocation: Allocation) -> None:
        """Puts the limits of an allocation into force; what cannot be written now is logged once,
        and written later.
        """
        resolved = self.resolved(allocation)
        limits = resolved.limits
        try:
            before = self._store.put(allocation, limits)
        except RegionBusyError as error:
            self.note_late(allocation, error.message)
            return
        except VgpuError as error:
            if allocation.allocation_id not in self._late:
                event(
                    logging.ERROR,
                    "limits cannot be written, will try again",
                    allocation=allocation.allocation_id,
                    reason=error.message,
                )
            self._late.add(allocation.allocation_id)
            return
        self._late.discard(allocation.allocation_id)
        if before is None:
            return
        devices = list(zip(before.devices, limits.devices, strict=True))
        waits = [each for pair in devices for each in pending(*pair, limits.family).values()]
        for old, new in devices:
            if old == replace(new, unaccounted_bytes=old.unaccounted_bytes) != new:
                continue  # the watch that measures it tells of it
            text = change_text(old, new, resolved.cause, waits)
            event(
                logging.INFO,
                "limits changed",
                notice=container_notice(EventReason.LIMITS_CHANGED, text, allocation.owner),
                allocation=allocation.allocation_id,
                owner=allocation.owner or "unknown",
                gpu=new.uuid,
                memory_bytes=f"{old.memory_limit_bytes}->{new.memory_limit_bytes}",
                core_percent=f"{old.core_percent}->{new.core_percent}",
                compute=f"{old.compute_mode.word}->{new.compute_mode.word}",
                pending="; ".join(waits) or "nothing",
                cause=resolved.cause,
            )

    # ---- what is resolved and kept -----------------------------------------------------------

    def _fitted(self, allocation: Allocation) -> tuple[Allocation, ResolvedLimits]:
        """Returns the allocation with the units that its raise uses up now, and what holds then."""
        kept = self._kept.get(allocation.allocation_id)
        if kept is not None and kept.inputs == self._inputs(allocation):
            resolved = kept.resolved
            if resolved.refusal is None and resolved.raised == taken_by(allocation).taken:
                return allocation, resolved  # no unit that is free by now would change it
        layout, book = self._state.layout, self._state.book
        resolved = self.resolved(allocation, room_on(layout, book, allocation))
        new = with_units(layout, book, allocation, resolved.raised)
        self._kept[new.allocation_id] = _Kept(self._inputs(new), resolved)
        return new, resolved

    def _inputs(self, allocation: Allocation) -> tuple[object, ...]:
        """Returns all that a result depends on; equal parts are mostly the same objects."""
        return (
            allocation.family,
            allocation.memory_unit_bytes,
            allocation.core,
            allocation.memory,
            allocation.implicit_units,
            allocation.raised,
            allocation.compute,
            allocation.override,
            allocation.owner,
            self._state.layout,
            self.rules,
            self._labels(allocation.allocation_id),
            self._charged(allocation.allocation_id),
        )

    def _charged(self, allocation_id: str) -> Mapping[str, int]:
        """Returns what an allocation is charged with; what an earlier agent charged still holds."""
        if allocation_id not in self._state.book.allocations:
            return {}  # about to begin: it has no files yet
        if allocation_id not in self._unaccounted:
            self._unaccounted[allocation_id] = self._store.unaccounted(allocation_id)
        return self._unaccounted[allocation_id]
