"""From request, rules and `vgpuctl set` to the values of a `limits` file."""

import pytest

from deviceplugin.config.loading import LimitRule
from deviceplugin.model.allocations import Allocation, Owner
from deviceplugin.model.overrides import Override
from deviceplugin.policy.effective_limits import (
    PLENTY,
    RaiseRoom,
    asked_limits,
    effective_limits,
    matching_rule,
    pending,
    pending_values,
)
from libvgpu.limits import ComputeMode, ContainerLimits, DeviceLimit, Family

GIB = 1 << 30
MIB = 1 << 20
OWNER = Owner("team-a", "pod", "main")


def asked(family: Family = Family.VGPU, core: int = 40, memory: int = 8) -> ContainerLimits:
    allocation = Allocation(
        "id",
        family,
        "GPU-0",
        GIB,
        core=tuple(f"GPU-0::c{n}" for n in range(core)),
        memory=tuple(f"GPU-0::m{n}" for n in range(memory)),
    )
    return asked_limits(allocation, ComputeMode.STRICT)


def under(
    rule: LimitRule | None,
    family: Family = Family.VGPU,
    override: Override | None = None,
    room: RaiseRoom = PLENTY,
) -> DeviceLimit:
    (device,) = effective_limits(asked(family), rule, override, room).devices
    return device


def test_units_become_bytes_and_percent() -> None:
    device = under(None)

    assert (device.memory_limit_bytes, device.core_percent, device.weight) == (8 * GIB, 40, 40)
    assert device.compute_mode is ComputeMode.STRICT
    assert device.mps_thread_percentage == device.mps_pinned_bytes == 0


def test_nothing_can_be_allocated_while_the_memory_half_is_missing() -> None:
    (device,) = asked(memory=0).devices
    (under_mps,) = asked(Family.MPS, memory=0).devices

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
        (LimitRule(core_share_of_asked=0.6), 24, 8 * GIB),
        (LimitRule(core_share_of_asked=0.001), 1, 8 * GIB),
        (LimitRule(memory_bytes=GIB), 40, GIB),
        (LimitRule(memory_bytes=9 * GIB), 40, 8 * GIB),
    ],
)
def test_a_rule_only_lowers(rule: LimitRule, core: int, memory: int) -> None:
    device = under(rule)

    assert (device.core_percent, device.memory_limit_bytes) == (core, memory)
    assert device.physical_bytes == memory


def test_the_first_match_counts() -> None:
    rules = (
        LimitRule(namespace="team-b", core_percent=1),
        LimitRule(pod_labels=(("tier", "batch"),), core_percent=2),
        LimitRule(namespace="team-*", container="m?in", core_percent=3),
        LimitRule(core_percent=4),
    )

    assert matching_rule(rules, OWNER) == rules[2]
    assert matching_rule(rules, Owner("x", "pod", "main")) == rules[3]
    assert matching_rule(rules[:3], Owner("x", "pod", "main")) is None


def test_an_unknown_container_has_what_it_asked_for() -> None:
    assert matching_rule((LimitRule(core_percent=4),), None) is None


def test_under_mps_less_memory_holds_at_once_and_the_rest_is_pending() -> None:
    full = asked(Family.MPS)
    lowered = effective_limits(full, LimitRule(core_percent=10, memory_bytes=GIB))

    assert pending(full, lowered) == ["core 40 to 10"]
    assert pending(lowered, full) == ["core 10 to 40", f"memory {GIB} to {8 * GIB} bytes"]
    assert pending(asked(), effective_limits(asked(), LimitRule(core_percent=1))) == []


def test_labels_count_only_where_somebody_can_tell_them() -> None:
    rules = (LimitRule(pod_labels=(("tier", "batch"), ("team", "a")), core_percent=1),)

    assert matching_rule(rules, OWNER) is None
    assert matching_rule(rules, OWNER, {"tier": "batch"}) is None
    assert matching_rule(rules, OWNER, {"tier": "batch", "team": "a", "x": "y"}) == rules[0]


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
def test_it_rises_as_far_as_there_is_room_where_the_rule_allows_it(
    rule: LimitRule, override: Override | None
) -> None:
    wanted = under(rule, override=override)
    held = under(rule, override=override, room=RaiseRoom(10, GIB))
    without = under(rule, override=override, room=RaiseRoom())

    assert (wanted.core_percent, wanted.memory_limit_bytes) == (70, 12 * GIB)
    assert (held.core_percent, held.memory_limit_bytes) == (50, 9 * GIB)
    assert (without.core_percent, without.memory_limit_bytes) == (40, 8 * GIB)


def test_a_half_that_is_missing_is_never_made_by_a_raise() -> None:
    rule = LimitRule(core_percent=70, memory_bytes=12 * GIB, allow_raise=True)

    (no_memory,) = effective_limits(asked(memory=0), rule, None, PLENTY).devices
    (no_core,) = effective_limits(asked(core=0), rule, Override(core_percent=9), PLENTY).devices

    assert (no_memory.memory_limit_bytes, no_memory.core_percent) == (0, 70)
    assert (no_core.memory_limit_bytes, no_core.core_percent) == (12 * GIB, 0)
    assert no_core.compute_mode is ComputeMode.STRICT


@pytest.mark.parametrize(
    ("rule", "compute", "mode"),
    [
        (None, "elastic", ComputeMode.ELASTIC),
        (LimitRule(compute=ComputeMode.ELASTIC), "strict", ComputeMode.STRICT),
        (None, "off", ComputeMode.STRICT),  # it would lift the share
        (LimitRule(core_percent=9), "off", ComputeMode.STRICT),
        (LimitRule(compute=ComputeMode.OFF), "off", ComputeMode.OFF),
        (LimitRule(allow_raise=True), "off", ComputeMode.OFF),
    ],
)
def test_compute_is_set_but_the_share_is_not_lifted(
    rule: LimitRule | None, compute: str, mode: ComputeMode
) -> None:
    assert under(rule, override=Override(compute=compute)).compute_mode is mode


def test_under_mps_compute_stays_with_the_daemon() -> None:
    device = under(None, Family.MPS, Override(core_percent=7, compute="elastic"))

    assert device.compute_mode is ComputeMode.OFF
    assert (device.core_percent, device.mps_thread_percentage) == (7, 7)


def test_pending_names_the_values_that_wait() -> None:
    full = asked(Family.MPS).devices[0]
    less = under(None, Family.MPS, Override(10, GIB))

    assert pending_values(full, less, Family.MPS) == ("core",)
    assert pending_values(less, full, Family.MPS) == ("core", "memory")
    assert pending_values(full, full, Family.MPS) == ()
    assert pending_values(full, less, Family.VGPU) == ()
