"""From units and rules to the values of a `limits` file."""

import pytest

from deviceplugin.config import LimitRule
from deviceplugin.holdings import Holding, Owner
from deviceplugin.limits import asked_limits, effective_limits, matching_rule, pending
from libvgpu.limits import ComputeMode, ContainerLimits, DeviceLimit, Family

GIB = 1 << 30
MIB = 1 << 20
OWNER = Owner("team-a", "pod", "main")


def asked(family: Family = Family.VGPU, core: int = 40, memory: int = 8) -> ContainerLimits:
    holding = Holding(
        "id", family, "GPU-0", GIB,
        core=tuple(f"GPU-0::c{n}" for n in range(core)),
        memory=tuple(f"GPU-0::m{n}" for n in range(memory)),
    )  # fmt: skip
    return asked_limits(holding, ComputeMode.STRICT)


def under(rule: LimitRule | None, family: Family = Family.VGPU) -> DeviceLimit:
    (device,) = effective_limits(asked(family), rule).devices
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
        LimitRule(needs_labels=True, core_percent=2),
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
