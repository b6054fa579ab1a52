"""What holds for a container and where it comes from: request, rules, `vgpuctl set`, room."""

from dataclasses import replace

import pytest

from deviceplugin.model.allocations import Allocation, Owner
from deviceplugin.model.limit_rules import LimitRule
from deviceplugin.model.overrides import Override
from deviceplugin.policy.limits.asked import asked_limits
from deviceplugin.policy.limits.resolver import Origin, ResolvedLimits, Source, resolve
from deviceplugin.policy.limits.rules import RaiseRoom, RaiseUnits
from libvgpu.limits import WHOLE_CORE_PERCENT, ComputeMode, DeviceLimit, Family
from support.node.units import GIB, holding

MIB = 1 << 20
PLENTY = RaiseRoom(free=RaiseUnits(100, 100))
WHO = "team-a/pod/main (allocation id)"
BY_RULE = Origin(Source.RULE, "limits[2] on line 7")
SET, REQUEST, SHARING = Origin(Source.SET), Origin(Source.REQUEST), Origin(Source.SHARING)


def allocation(family: Family = Family.VGPU, core: int = 40, memory: int = 8) -> Allocation:
    who = Owner("team-a", "pod", "main")
    return holding("id", range(core), range(memory), family=family, owner=who)


def resolved(
    one: Allocation,
    rule: LimitRule | None = None,
    override: Override | None = None,
    room: RaiseRoom = PLENTY,
    charged_bytes: int = 0,
) -> ResolvedLimits:
    one = replace(one, override=override)
    asked = asked_limits(one, ComputeMode.STRICT)
    return resolve(one, asked, rule, room, {"GPU-0": charged_bytes})


def under(
    rule: LimitRule | None,
    family: Family = Family.VGPU,
    override: Override | None = None,
    room: RaiseRoom = PLENTY,
) -> DeviceLimit:
    (device,) = resolved(allocation(family), rule, override, room).limits.devices
    return device


def test_nothing_can_be_allocated_while_the_memory_half_is_missing() -> None:
    (device,) = resolved(allocation(memory=0)).limits.devices
    (under_mps,) = resolved(allocation(Family.MPS, memory=0)).limits.devices

    assert device.memory_limit_bytes == under_mps.memory_limit_bytes == 0
    assert under_mps.mps_pinned_bytes == 0


def test_mps_holds_the_share_and_the_shim_the_memory() -> None:
    device = under(LimitRule(memory_bytes=6 * GIB + MIB // 2), Family.MPS)

    assert device.compute_mode is ComputeMode.OFF
    assert device.mps_thread_percentage == 40
    assert device.memory_limit_bytes == 6 * GIB + MIB // 2
    assert device.mps_pinned_bytes == 6 * GIB
    assert device.mps_pipe_directory == "/run/vgpu/mps"


@pytest.mark.parametrize(
    ("rule", "core", "memory"),
    [
        (LimitRule(core_percent=30), 30, 8 * GIB),
        (LimitRule(core_percent=90), 40, 8 * GIB),
        (LimitRule(core_part_of_asked=0.6), 24, 8 * GIB),
        (LimitRule(core_part_of_asked=0.001), 1, 8 * GIB),
        (LimitRule(memory_bytes=GIB), 40, GIB),
        (LimitRule(memory_bytes=9 * GIB), 40, 8 * GIB),
    ],
)
def test_a_rule_only_lowers(rule: LimitRule, core: int, memory: int) -> None:
    device = under(rule)

    assert (device.core_percent, device.memory_limit_bytes) == (core, memory)
    assert device.physical_bytes == memory


@pytest.mark.parametrize(
    ("rule", "override", "core", "memory"),
    [
        # What was set stands before the rule, value by value, and never above the request.
        (LimitRule(core_percent=10), Override(core_percent=30), 30, 8 * GIB),
        (LimitRule(core_percent=30), Override(core_percent=10), 10, 8 * GIB),
        (LimitRule(core_percent=10), Override(memory_bytes=GIB), 10, GIB),
        (LimitRule(memory_bytes=GIB), Override(memory_bytes=2 * GIB), 40, 2 * GIB),
        (None, Override(core_percent=90, memory_bytes=9 * GIB), 40, 8 * GIB),
        (LimitRule(core_percent=90), Override(core_percent=95), 40, 8 * GIB),
    ],
)
def test_what_was_set_stands_before_rule_and_request(
    rule: LimitRule | None, override: Override, core: int, memory: int
) -> None:
    device = under(rule, override=override)

    assert (device.core_percent, device.memory_limit_bytes) == (core, memory)
    assert (device.physical_bytes, device.weight) == (memory, core)


@pytest.mark.parametrize(
    ("rule", "override"),
    [
        (LimitRule(core_percent=70, memory_bytes=12 * GIB, allow_raise=True), None),
        (LimitRule(allow_raise=True), Override(core_percent=70, memory_bytes=12 * GIB)),
        (LimitRule(core_percent=5, allow_raise=True), Override(70, 12 * GIB)),
    ],
)
def test_it_rises_whole_or_keeps_what_an_earlier_raise_took(
    rule: LimitRule, override: Override | None
) -> None:
    whole = resolved(allocation(), rule, override, RaiseRoom(free=RaiseUnits(30, 4)))
    none = resolved(allocation(), rule, override, RaiseRoom(free=RaiseUnits(29, 3)))
    taken = RaiseRoom(RaiseUnits(10, 1), RaiseUnits(5, 2))
    kept = resolved(allocation(), rule, override, taken)

    found = [(r.limits.devices[0], r.raised) for r in (whole, none, kept)]
    assert [(d.core_percent, d.memory_limit_bytes, raised) for d, raised in found] == [
        (70, 12 * GIB, RaiseUnits(30, 4)),
        (40, 8 * GIB, RaiseUnits()),
        (50, 9 * GIB, RaiseUnits(10, 1)),
    ]
    assert whole.refusal is None
    assert kept.core_refusal == (
        f"core 70 of {WHO} cannot be given: that is 30 more than the 40 it asked for, and GPU "
        "GPU-0 has 15 unallocated; at most 55 is allowed"
    )
    assert kept.memory_refusal == (
        f"memory 12 GiB of {WHO} cannot be given: that is 4 GiB more than the 8 GiB it asked for, "
        "and GPU GPU-0 has 3 GiB unallocated; at most 11 GiB is allowed"
    )


@pytest.mark.parametrize(
    ("override", "units"),
    [
        (Override(10, GIB), (0, 0)),
        (Override(core_percent=55), (15, 0)),
        (Override(memory_bytes=8 * GIB + 1), (0, 1)),
        (Override(memory_bytes=10 * GIB), (0, 2)),
        (Override(41, 16 * GIB), (1, 8)),
    ],
)
def test_a_raise_uses_up_whole_units(override: Override, units: tuple[int, int]) -> None:
    found = resolved(allocation(), LimitRule(allow_raise=True), override)

    assert found.raised == RaiseUnits(*units)


def test_only_values_that_a_set_names_can_refuse_it() -> None:
    rule = LimitRule(memory_bytes=20 * GIB, allow_raise=True)

    lowered = resolved(allocation(), rule, Override(core_percent=30), RaiseRoom())

    assert lowered.memory_refusal is not None
    assert lowered.refusal_of(Override(core_percent=30)) is None
    assert lowered.refusal_of(Override(memory_bytes=20 * GIB)) == lowered.memory_refusal


def test_whole_gpus_are_never_raised() -> None:
    whole = holding("id", range(WHOLE_CORE_PERCENT), range(2), "GPU-0", "GPU-1")
    rule = LimitRule(allow_raise=True)

    raised = resolved(whole, rule, Override(memory_bytes=3 * GIB))
    lowered = resolved(whole, None, Override(memory_bytes=MIB))

    assert [d.memory_limit_bytes for d in raised.limits.devices] == [2 * GIB] * 2
    assert raised.raised == RaiseUnits()
    assert [d.memory_limit_bytes for d in lowered.limits.devices] == [MIB, MIB]
    assert [o.memory for o in lowered.origins] == [SET, SET]


def test_a_half_that_is_missing_is_never_made_by_a_raise() -> None:
    rule = LimitRule(core_percent=70, memory_bytes=12 * GIB, allow_raise=True)

    (no_memory,) = resolved(allocation(memory=0), rule).limits.devices
    (no_core,) = resolved(allocation(core=0), rule, Override(core_percent=9)).limits.devices

    assert (no_memory.memory_limit_bytes, no_memory.core_percent) == (0, 70)
    assert no_core.memory_limit_bytes == 12 * GIB
    # What others leave over, as the shim reads it.
    assert (no_core.core_percent, no_core.compute_mode) == (1, ComputeMode.ELASTIC)
    assert no_core.reserved_percent == 0


@pytest.mark.parametrize(
    ("rule", "compute", "mode"),
    [
        (None, ComputeMode.ELASTIC, ComputeMode.ELASTIC),
        (LimitRule(compute=ComputeMode.ELASTIC), ComputeMode.STRICT, ComputeMode.STRICT),
        (None, ComputeMode.OFF, ComputeMode.STRICT),  # it would lift the share
        (LimitRule(core_percent=9), ComputeMode.OFF, ComputeMode.STRICT),
        (LimitRule(compute=ComputeMode.OFF), ComputeMode.OFF, ComputeMode.OFF),
        (LimitRule(allow_raise=True), ComputeMode.OFF, ComputeMode.OFF),
    ],
)
def test_compute_is_set_but_the_share_is_not_lifted(
    rule: LimitRule | None, compute: ComputeMode, mode: ComputeMode
) -> None:
    assert under(rule, override=Override(compute=compute)).compute_mode is mode


def rule_7(**values: object) -> LimitRule:
    return LimitRule(path="$.limits[2]", line=7, **values)  # type: ignore[arg-type]


@pytest.mark.parametrize("family", list(Family))
def test_each_value_says_where_it_comes_from(family: Family) -> None:
    one = allocation(family)
    rule = rule_7(core_percent=30, compute=ComputeMode.ELASTIC)

    (asked,) = resolved(one).origins
    (ruled,) = resolved(one, rule).origins
    (both,) = resolved(one, rule, Override(memory_bytes=GIB)).origins

    assert (asked.core, asked.memory, asked.compute) == (REQUEST, REQUEST, SHARING)
    # MPS holds the share of its clients, whatever a rule says.
    compute = SHARING if family is Family.MPS else BY_RULE
    assert (ruled.core, ruled.memory, ruled.compute) == (BY_RULE, REQUEST, compute)
    assert (both.core, both.memory, both.compute) == (BY_RULE, SET, compute)
    assert str(both.core) == "limits[2] on line 7"
    assert [str(origin) for origin in (both.memory, asked.core)] == ["vgpuctl set", "request"]


@pytest.mark.parametrize("family", list(Family))
def test_a_value_above_the_request_says_what_holds_it(family: Family) -> None:
    one, more = allocation(family), Override(memory_bytes=12 * GIB)
    forbidding = rule_7(core_percent=90, memory_bytes=9 * GIB)
    allowing = rule_7(core_percent=60, allow_raise=True)
    some = RaiseRoom(RaiseUnits(10, 1))

    (forbidden,) = resolved(one, forbidding, more).origins
    (given,) = resolved(one, allowing, more).origins
    (capped,) = resolved(one, allowing, more, some).origins

    assert (forbidden.core, forbidden.memory) == (REQUEST, REQUEST)
    assert (given.core, given.memory) == (BY_RULE, SET)
    assert capped.core == replace(BY_RULE, capped=True)
    assert capped.memory == replace(SET, capped=True)
    assert str(capped.memory) == "vgpuctl set, capped by what the GPU has unallocated"


def test_what_is_charged_stands_in_the_limits_and_not_in_the_request() -> None:
    found = resolved(allocation(), charged_bytes=MIB)

    assert found.limits.devices[0].unaccounted_bytes == MIB
    assert found.asked.devices[0].unaccounted_bytes == 0


def test_the_cause_names_who_has_the_last_word() -> None:
    rule = rule_7(core_percent=90)

    assert resolved(allocation()).cause == "request"
    assert resolved(allocation(), rule).cause == "limits[2] on line 7"
    assert resolved(allocation(), None, Override(1)).cause == "vgpuctl set"
    assert resolved(allocation(), rule, Override(1)).cause == "vgpuctl set over limits[2] on line 7"
