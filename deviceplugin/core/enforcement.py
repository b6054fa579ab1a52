"""Brings the limits in force into the containers' files: request, rules, `vgpuctl set`, raises.

A raise takes units out of the GPU first (`borrowing`); they are withdrawn from the kubelet. Called
under the agent's lock.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from deviceplugin.config.loading import LimitRule
from deviceplugin.log import event
from deviceplugin.model.allocations import Holding
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
from libvgpu.limits import ComputeMode, ContainerLimits

#: Of a GPU that is not there any more, where nobody noted how it was shared.
DEFAULT_COMPUTE = ComputeMode.STRICT
#: Of so many allocations that have ended, what they were charged with beside may be remembered.
_MOST_ENDED = 64


class Enforcement:
    """What every holding may use, and its way into the files."""

    def __init__(self, state: NodeState, store: SliceStore, rules: Sequence[LimitRule]) -> None:
        self._state = state
        self._store = store
        self.rules = rules
        #: Tells the labels of an allocation's pod, None where nobody knows them.
        self.labels: Callable[[str], Mapping[str, str] | None] = lambda allocation_id: None
        self._unaccounted: dict[str, Mapping[str, int]] = {}  # bytes by GPU, by allocation id

    def limits(self, holding: Holding) -> ContainerLimits:
        """Returns what a holding may use now."""
        asked, rule = self._asked(holding), self._rule(holding)
        held = with_left_over(effective_limits(asked, rule, holding.override, room_of(holding)))
        return with_unaccounted(held, self._beside(holding.allocation_id))

    def asked(self, holding: Holding) -> ContainerLimits:
        """Returns what a holding asked for, without rules and `vgpuctl set`."""
        return self._asked(holding)

    def set_unaccounted(self, charges: Mapping[str, Mapping[str, int]]) -> None:
        """Charges allocations with what they have beside their ledgers; 0 takes it back.

        Args:
            charges: bytes by GPU, by allocation id; what is not named stays. Allocations that have
                ended meanwhile are left out.
        """
        holdings = self._state.book.holdings
        for allocation_id, charge in charges.items():
            if allocation_id in holdings:
                beside = {**self._beside(allocation_id), **charge}
                self._unaccounted[allocation_id] = beside
                self.write(holdings[allocation_id])

    def _beside(self, allocation_id: str) -> Mapping[str, int]:
        """Returns what an allocation is charged with; what an earlier agent charged still holds."""
        holdings = self._state.book.holdings
        if allocation_id not in holdings:
            return {}  # about to begin: it has no files yet
        if allocation_id not in self._unaccounted:
            if len(self._unaccounted) > 2 * len(holdings) + _MOST_ENDED:
                for ended in self._unaccounted.keys() - holdings.keys():
                    del self._unaccounted[ended]
            self._unaccounted[allocation_id] = self._store.unaccounted(allocation_id)
        return self._unaccounted[allocation_id]

    def follow_rules(self, holdings: Sequence[Holding]) -> None:
        """Puts the rules into force in ``holdings``; what one gives up another may rise by."""
        fitted = [(h, *self._fitted(h)) for h in holdings]
        changed = {}
        for old, new, _ in fitted:
            if len(new.raised) < len(old.raised):
                self._state.book.put(new)
                changed[new.allocation_id] = new
        for old, new, problem in fitted:
            if len(new.raised) > len(old.raised) or problem is not None:
                new, problem = self._fitted(self._state.book.holdings[old.allocation_id])
                if new.raised != old.raised:
                    changed[new.allocation_id] = new
                self._state.book.put(new)
            if problem is not None:
                event(logging.WARNING, "raise refused", allocation=old.allocation_id,
                      owner=old.owner or "unknown", reason=problem)  # fmt: skip
            self.write(self._state.book.holdings[old.allocation_id])
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
        holding = self._known(allocation_id)
        asked, rule = self._asked(holding), self._rule(holding)
        who = holding.described()
        wanted = effective_limits(asked, LimitRule(allow_raise=True), override, PLENTY)
        room = reach_of(self._state.layout, self._state.book, holding)
        problem = not_permitted(asked, rule, override, who) or no_room(asked, wanted, room, who)
        if problem is not None:
            raise AllocationRefused(problem)
        return self._override(holding, override.over(holding.override))

    def clear_override(self, allocation_id: str) -> LimitChange:
        """Takes back what was set; raises like `set_override`."""
        return self._override(self._known(allocation_id), None)

    def write(self, holding: Holding) -> None:
        """Puts the limits of a holding into force; what cannot be written is logged."""
        limits = self.limits(holding)
        try:
            before = self._store.put(holding, limits)
        except VgpuError as error:
            event(logging.ERROR, "limits cannot be written", allocation=holding.allocation_id,
                  reason=error.message)  # fmt: skip
            return
        if before is None:
            return
        for old, new in zip(before.devices, limits.devices, strict=True):
            if old == replace(new, unaccounted_bytes=old.unaccounted_bytes) != new:
                continue  # the watch that measures it tells of it
            event(
                logging.INFO, "limits changed", allocation=holding.allocation_id,
                owner=holding.owner or "unknown", gpu=new.uuid,
                memory_bytes=f"{old.memory_limit_bytes}->{new.memory_limit_bytes}",
                core_percent=f"{old.core_percent}->{new.core_percent}",
                compute=f"{old.compute_mode.name}->{new.compute_mode.name}".lower(),
                pending="; ".join(pending(before, limits)) or "nothing",
                cause=cause(self._rule(holding), holding.override),
            )  # fmt: skip

    def _known(self, allocation_id: str) -> Holding:
        holding = self._state.book.holdings.get(allocation_id)
        if holding is None:
            raise UnknownAllocation(f"allocation {allocation_id} is not there (any more)")
        return holding

    def _override(self, holding: Holding, override: Override | None) -> LimitChange:
        before = self.limits(holding)
        new, _ = self._fitted(replace(holding, override=override))
        self._state.commit([new])
        self.write(new)
        if new.raised != holding.raised:
            self._state.announce()
        after = self.limits(new)
        owner = str(holding.owner) if holding.owner else ""
        return LimitChange(owner, before, after, tuple(pending(before, after)))

    def _fitted(self, holding: Holding) -> tuple[Holding, str | None]:
        asked = self._asked(holding)
        wanted = effective_limits(asked, self._rule(holding), holding.override, PLENTY)
        return fit_raise(self._state.layout, self._state.book, holding, asked, wanted)

    def _asked(self, holding: Holding) -> ContainerLimits:
        uuids = holding.uuids
        here = {g.gpu.uuid: g for g in self._state.layout.gpus if g.gpu.uuid in uuids}
        shared = here.get(holding.uuid)
        whole_bytes = {
            uuid: gpu.gpu.memory_bytes
            for uuid, gpu in here.items()
            if fits_layout(gpu, [holding])
            and len(holding.units) >= sum(gpu_units(gpu, half) for half in Half)
            and all(holding.count(half, uuid) == gpu_units(gpu, half) for half in Half)
        }
        mode = shared.compute if shared else holding.compute
        mode = DEFAULT_COMPUTE if mode is None else mode
        context_bytes = shared.gpu.context_bytes if shared else 0
        return asked_limits(holding, mode, context_bytes, whole_bytes)

    def _rule(self, holding: Holding) -> LimitRule | None:
        return matching_rule(self.rules, holding.owner, self.labels(holding.allocation_id))
