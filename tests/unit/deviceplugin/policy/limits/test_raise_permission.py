"""Why what is set is not permitted."""

import pytest

from deviceplugin.model.limit_rules import LimitRule
from deviceplugin.model.overrides import Override
from deviceplugin.policy.limits.asked import asked_limits
from deviceplugin.policy.limits.rules import not_permitted
from libvgpu.limits import ComputeMode, ContainerLimits, DeviceLimit, Family
from support.node.units import GIB, holding

MIB = 1 << 20
WHO = "team-a/pod/main (allocation id)"
ALLOWING = LimitRule(allow_raise=True, path="$.limits[0]", line=3)
FORBIDDING = LimitRule(core_percent=90, path="$.limits[2]", line=7)


def asked(core: int = 40, memory: int = 8, family: Family = Family.VGPU) -> ContainerLimits:
    held = holding("id", range(core), range(memory), family=family)
    return asked_limits(held, ComputeMode.STRICT)


def test_only_what_lies_above_the_request_needs_a_permission() -> None:
    for rule in (None, FORBIDDING, ALLOWING):
        assert not_permitted(asked(), rule, Override(40, 8 * GIB, ComputeMode.ELASTIC), WHO) is None
    assert not_permitted(asked(), ALLOWING, Override(90, 15 * GIB, ComputeMode.OFF), WHO) is None


@pytest.mark.parametrize(
    ("rule", "override", "sentence"),
    [
        (
            None, Override(core_percent=41),
            (f"core 41 of {WHO} cannot be set: it asked for 40, and no rule of limits: with "
             "allowRaise: true matches it; at most 40 is allowed"),
        ),
        (
            FORBIDDING, Override(memory_bytes=8 * GIB + 512 * MIB),
            (f"memory 8.5 GiB of {WHO} cannot be set: it asked for 8 GiB, and limits[2] on line 7, "
             "which matches it, has no allowRaise: true; at most 8 GiB is allowed"),
        ),
        (
            None, Override(compute=ComputeMode.OFF),
            (f"compute off of {WHO} cannot be set: it would lift the share of 40 %, and no rule of "
             "limits: with allowRaise: true matches it; allowed are strict and elastic"),
        ),
    ],
)  # fmt: skip
def test_a_raise_without_permission_is_refused_with_value_and_reason(
    rule: LimitRule | None, override: Override, sentence: str
) -> None:
    assert not_permitted(asked(), rule, override, WHO) == sentence


def test_compute_of_family_mps_and_core_of_none_are_refused() -> None:
    strict = Override(compute=ComputeMode.STRICT)
    under_mps = not_permitted(asked(family=Family.MPS), ALLOWING, strict, WHO)
    no_core = not_permitted(asked(core=0), ALLOWING, Override(core_percent=5), WHO)

    assert under_mps is not None and "belongs to family vgpu" in under_mps
    assert no_core is not None and "no compute of its own" in no_core


def test_whole_gpus_may_not_be_raised() -> None:
    devices = tuple(
        DeviceLimit(f"GPU-{n}", GIB, physical_bytes=GIB, core_percent=100, weight=100)
        for n in range(2)
    )
    whole = ContainerLimits("id", Family.VGPU, devices)
    override = Override(memory_bytes=2 * GIB)

    problem = not_permitted(whole, ALLOWING, override, WHO)

    assert problem is not None and "it has whole GPUs" in problem
