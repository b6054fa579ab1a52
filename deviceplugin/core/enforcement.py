"""Brings the limits in force into the containers' files: request, rules, `vgpuctl set`, raises.

A raise takes units out of the GPU first (`borrowing`); they are withdrawn from the kubelet. Called
under the agent's lock.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from deviceplugin.config.loading import LimitRule
from deviceplugin.log import event
from deviceplugin.model.allocations import Allocation
from deviceplugin.model.notices import EventReason, container_notice
from deviceplugin.model.overrides import LimitChange, Override
from deviceplugin.model.units import Half
from deviceplugin.policy.effective_limits import (
    PLENTY,
    asked_limits,
    effective_limits,
    matching_rule,
    pending,
    with_left_over,
    with_unaccounted,
)
from deviceplugin.policy.offer import fits_layout, gpu_units
from deviceplugin.policy.raise_permission import cause, no_room, not_permitted
from deviceplugin.policy.raise_units import fit_raise, reach_of, room_of
from deviceplugin.store.node_state import NodeState
from deviceplugin.store.slice_files import SliceStore
from libvgpu.errors import AllocationRefused, UnknownAllocation, VgpuError
from libvgpu.limits import ComputeMode, ContainerLimits, DeviceLimit
from libvgpu.sizes import format_size

#: Of a GPU that is not there any more, where nobody noted how it was shared.
DEFAULT_COMPUTE = ComputeMode.STRICT
#: Of so many allocations that have ended, what they were charged with beside may be remembered.
_MOST_ENDED = 64


class Enforcement:
    """What every allocation may use, and its way into the files."""

    def __init__(self, state: NodeState, store: SliceStore, rules: Sequence[LimitRule]) -> None:
        self._state = state
        self._store = store
        self.rules = rules
        #: Tells the labels of an allocation's pod, None where nobody knows them.
        self.labels: Callable[[str], Mapping[str, str] | None] = lambda allocation_id: None
        self._unaccounted: dict[str, Mapping[str, int]] = {}  # bytes by GPU, by allocation id

    def limits(self, allocation: Allocation) -> ContainerLimits:
        """Returns what an allocation may use now."""
        asked, rule = self._asked(allocation), self._rule(allocation)
        held = with_left_over(
            effective_limits(asked, rule, allocation.override, room_of(allocation))
        )
        return with_unaccounted(held, self._beside(allocation.allocation_id))

    def asked(self, allocation: Allocation) -> ContainerLimits:
        """Returns what an allocation asked for, without rules and `vgpuctl set`."""
        return self._asked(allocation)

    def set_unaccounted(self, charges: Mapping[str, Mapping[str, int]]) -> None:
        """Charges allocations with what they have beside their ledgers; 0 takes it back.

        Args:
            charges: bytes by GPU, by allocation id; what is not named stays. Allocations that have
                ended meanwhile are left out.
        """
        allocations = self._state.book.allocations
        for allocation_id, charge in charges.items():
            if allocation_id in allocations:
                beside = {**self._beside(allocation_id), **charge}
                self._unaccounted[allocation_id] = beside
                self.write(allocations[allocation_id])

    def _beside(self, allocation_id: str) -> Mapping[str, int]:
        """Returns what an allocation is charged with; what an earlier agent charged still holds."""
        allocations = self._state.book.allocations
        if allocation_id not in allocations:
            return {}  # about to begin: it has no files yet
        if allocation_id not in self._unaccounted:
            if len(self._unaccounted) > 2 * len(allocations) + _MOST_ENDED:
                for ended in self._unaccounted.keys() - allocations.keys():
                    del self._unaccounted[ended]
            self._unaccounted[allocation_id] = self._store.unaccounted(allocation_id)
        return self._unaccounted[allocation_id]

    def follow_rules(self, allocations: Sequence[Allocation]) -> None:
        """Puts the rules into force in ``allocations``; what one gives up another may rise by."""
        fitted = [(h, *self._fitted(h)) for h in allocations]
        changed = {}
        for old, new, _ in fitted:
            if len(new.raised) < len(old.raised):
                self._state.book.put(new)
                changed[new.allocation_id] = new
        for old, new, problem in fitted:
            if len(new.raised) > len(old.raised) or problem is not None:
                new, problem = self._fitted(self._state.book.allocations[old.allocation_id])
                if new.raised != old.raised:
                    changed[new.allocation_id] = new
                self._state.book.put(new)
            if problem is not None:
                event(
                    logging.WARNING,
                    "raise refused",
                    notice=container_notice(EventReason.RAISE_REFUSED, problem, old.owner),
                    allocation=old.allocation_id,
                    owner=old.owner or "unknown",
                    reason=problem,
                )
            self.write(self._state.book.allocations[old.allocation_id])
        if changed:
            self._state.commit(changed.values())
            self._state.announce()

    def set_override(self, allocation_id: str, override: Override) -> LimitChange:
        """Puts values into force for one container, until they are cleared or it ends.

        What ``override`` leaves out stays as it was set before.

        Raises:
            UnknownAllocation: there is no such allocation.
            AllocationRefused: it may not be raised so far, and nothing has changed.
            VgpuError: it cannot be written.
        """
        allocation = self._known(allocation_id)
        asked, rule = self._asked(allocation), self._rule(allocation)
        who = allocation.described()
        wanted = effective_limits(asked, LimitRule(allow_raise=True), override, PLENTY)
        room = reach_of(self._state.layout, self._state.book, allocation)
        problem = not_permitted(asked, rule, override, who) or no_room(asked, wanted, room, who)
        if problem is not None:
            raise AllocationRefused(problem)
        return self._override(allocation, override.over(allocation.override))

    def clear_override(self, allocation_id: str) -> LimitChange:
        """Takes back what was set; raises like `set_override`."""
        return self._override(self._known(allocation_id), None)

    def write(self, allocation: Allocation) -> None:
        """Puts the limits of an allocation into force; what cannot be written is logged."""
        limits = self.limits(allocation)
        try:
            before = self._store.put(allocation, limits)
        except VgpuError as error:
            event(
                logging.ERROR,
                "limits cannot be written",
                allocation=allocation.allocation_id,
                reason=error.message,
            )
            return
        if before is None:
            return
        for old, new in zip(before.devices, limits.devices, strict=True):
            if old == replace(new, unaccounted_bytes=old.unaccounted_bytes) != new:
                continue  # the watch that measures it tells of it
            waits = pending(before, limits)
            why = cause(self._rule(allocation), allocation.override)
            event(
                logging.INFO,
                "limits changed",
                notice=container_notice(
                    EventReason.LIMITS_CHANGED, _changed(old, new, why, waits), allocation.owner
                ),
                allocation=allocation.allocation_id,
                owner=allocation.owner or "unknown",
                gpu=new.uuid,
                memory_bytes=f"{old.memory_limit_bytes}->{new.memory_limit_bytes}",
                core_percent=f"{old.core_percent}->{new.core_percent}",
                compute=f"{old.compute_mode.name}->{new.compute_mode.name}".lower(),
                pending="; ".join(waits) or "nothing",
                cause=why,
            )

    def _known(self, allocation_id: str) -> Allocation:
        allocation = self._state.book.allocations.get(allocation_id)
        if allocation is None:
            raise UnknownAllocation(f"allocation {allocation_id} is not there (any more)")
        return allocation

    def _override(self, allocation: Allocation, override: Override | None) -> LimitChange:
        before = self.limits(allocation)
        new, _ = self._fitted(replace(allocation, override=override))
        self._state.commit([new])
        self.write(new)
        if new.raised != allocation.raised:
            self._state.announce()
        after = self.limits(new)
        owner = str(allocation.owner) if allocation.owner else ""
        return LimitChange(owner, before, after, tuple(pending(before, after)))

    def _fitted(self, allocation: Allocation) -> tuple[Allocation, str | None]:
        asked = self._asked(allocation)
        wanted = effective_limits(asked, self._rule(allocation), allocation.override, PLENTY)
        return fit_raise(self._state.layout, self._state.book, allocation, asked, wanted)

    def _asked(self, allocation: Allocation) -> ContainerLimits:
        uuids = allocation.uuids
        here = {g.gpu.uuid: g for g in self._state.layout.gpus if g.gpu.uuid in uuids}
        shared = here.get(allocation.uuid)
        whole_bytes = {
            uuid: gpu.gpu.memory_bytes
            for uuid, gpu in here.items()
            if fits_layout(gpu, [allocation])
            and len(allocation.units) >= sum(gpu_units(gpu, half) for half in Half)
            and all(allocation.count(half, uuid) == gpu_units(gpu, half) for half in Half)
        }
        mode = shared.compute if shared else allocation.compute
        mode = DEFAULT_COMPUTE if mode is None else mode
        context_bytes = shared.gpu.context_bytes if shared else 0
        return asked_limits(allocation, mode, context_bytes, whole_bytes)

    def _rule(self, allocation: Allocation) -> LimitRule | None:
        return matching_rule(self.rules, allocation.owner, self.labels(allocation.allocation_id))


def _changed(old: DeviceLimit, new: DeviceLimit, why: str, waits: Sequence[str]) -> str:
    """Returns what an Event says of a change of one device's limits."""
    sizes = f"{format_size(old.memory_limit_bytes)} to {format_size(new.memory_limit_bytes)}"
    text = f"GPU memory {sizes}, compute {old.core_percent}% to {new.core_percent}%"
    if old.compute_mode is not new.compute_mode:
        text += f" held {old.compute_mode.name.lower()} to {new.compute_mode.name.lower()}"
    later = f"; when its processes start again: {'; '.join(waits)}" if waits else ""
    return f"{text}, by {why}{later}"
