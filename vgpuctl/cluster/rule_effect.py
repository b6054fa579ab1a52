"""What other rules of a config mean for the slices of a node, by the agent's own policy. Pure.

What a container asked for, and which of its values `vgpuctl set` said, is the agent's word; what is
in force comes from the slice. So a change is known before the agents have it, but for two things: a
raise (``allowRaise``) is taken as given, while the agent gives what the GPU has unallocated; and
how the config shares a GPU is known only where no rule says `compute` now.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from deviceplugin.model.allocations import Allocation, Owner
from deviceplugin.model.limit_rules import LimitRule
from deviceplugin.model.overrides import LimitChange, Override
from deviceplugin.pages.changes import ChangedLimits
from deviceplugin.pages.slices import NodeSlices
from deviceplugin.pages.state import AgentReport, ReportedAllocation
from deviceplugin.policy.limits.changes import changed_limits
from deviceplugin.policy.limits.resolver import Source, resolve
from deviceplugin.policy.limits.rules import RaiseRoom, RaiseUnits, matching_rule
from libvgpu.limits import ContainerLimits
from libvgpu.slices import Slice

from ..commands.set import change_rows
from ..render import Row
from .listing import of_node

_ROOM = RaiseRoom(free=RaiseUnits(1 << 30, 1 << 30))
Labels = Callable[[Owner], Mapping[str, str] | None]


def effect(
    page: NodeSlices,
    report: AgentReport,
    rules: tuple[Sequence[LimitRule], Sequence[LimitRule]],
    labels: Labels,
) -> list[Row]:
    """Returns the rows of `vgpuctl set` for each container that another rule matches then.

    Args:
        rules: those before, and those afterwards.
        labels: of a container's pod; None where nobody can tell.
    """
    told = {each.allocation: each for each in report.allocations}
    rows: list[Row] = []
    for found in page.slices:
        mine = told.get(found.meta.allocation_id)
        if mine is None or found.limits is None or not found.meta.pod:
            continue
        meta = found.meta
        owner = Owner(meta.namespace, meta.pod, meta.container)
        before, after = (matching_rule(each, owner, labels(owner)) for each in rules)
        if _said(before) != _said(after):
            rows += change_rows(_change(found, found.limits, mine, after))
    return of_node(page.node, rows)


def _said(rule: LimitRule | None) -> LimitRule | None:
    """Returns what a rule says, wherever it stands."""
    return None if rule is None else replace(rule, path="", line=0)


def _change(
    found: Slice, now: ContainerLimits, told: ReportedAllocation, rule: LimitRule | None
) -> ChangedLimits:
    given = {each.gpu: each for each in told.devices}
    devices = []
    for device in now.devices:
        asked = given.get(device.uuid)
        if asked is None or asked.asked_core_percent is None or asked.asked_memory_bytes is None:
            devices.append(device)  # an agent of before does not say
            continue
        devices.append(
            replace(
                device,
                core_percent=asked.asked_core_percent,
                memory_limit_bytes=asked.asked_memory_bytes,
                physical_bytes=asked.asked_memory_bytes,
            )
        )
    first = now.devices[0]
    said = given.get(first.uuid)
    by_hand = Override(
        first.core_percent if said and _is_set(said.core) else None,
        first.memory_limit_bytes if said and _is_set(said.memory) else None,
        first.compute_mode if said and _is_set(said.compute) else None,
    )
    allocation = Allocation(
        told.allocation,
        now.family,
        first.uuid,
        found.meta.memory_unit_bytes or 1,
        override=None if by_hand == Override() else by_hand,
    )
    charged = {device.uuid: device.unaccounted_bytes for device in now.devices}
    asked_limits = replace(now, devices=tuple(devices))
    after = resolve(allocation, asked_limits, rule, _ROOM, charged).limits
    return changed_limits(told.allocation, LimitChange(told.owner, now, after))


def _is_set(origin: str) -> bool:
    return origin.startswith(Source.SET.value)
