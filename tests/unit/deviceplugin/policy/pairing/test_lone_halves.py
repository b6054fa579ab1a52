"""Which containers with one half may not start where the config forbids it."""

from dataclasses import replace

import pytest

from deviceplugin.config.loading import parse_config
from deviceplugin.model.allocations import Allocation, AllocationBook
from deviceplugin.model.fractional import LoneHalves
from deviceplugin.model.gpus import Gpu
from deviceplugin.model.units import Half, unit_name
from deviceplugin.policy.devices.draining import in_force, newly_offered
from deviceplugin.policy.devices.layout import Layout, lay_out
from deviceplugin.policy.pairing.lone_halves import check_not_lone
from libvgpu.errors import AllocationRefused, ConfigError
from libvgpu.limits import Family

GIB = 1 << 30
UUID = "GPU-0"
GPUS = (Gpu(0, UUID, "test", 16 * GIB), Gpu(1, "GPU-1", "test", 16 * GIB))
CORE = tuple(unit_name(UUID, Half.CORE, n) for n in range(30))
MEMORY = tuple(unit_name(UUID, Half.MEMORY, n) for n in range(4))
LONE_CORE = Allocation("a", Family.VGPU, UUID, GIB, core=CORE)
LONE_MEMORY = Allocation("b", Family.VGPU, UUID, GIB, memory=MEMORY)


def layout(lone_halves: str) -> Layout:
    entry = f"{{family: vgpu, loneHalves: {lone_halves}}}"
    return lay_out(parse_config(f"version: v1\nsharing: {{fractional: [{entry}]}}\n"), GPUS)


FORBIDDEN = layout("forbid")


def test_a_lone_half_is_refused_with_what_it_lacks() -> None:
    with pytest.raises(AllocationRefused) as core:
        check_not_lone(FORBIDDEN, LONE_CORE)
    with pytest.raises(AllocationRefused) as memory:
        check_not_lone(FORBIDDEN, LONE_MEMORY)

    assert core.value.message == (
        "nvidia.com/vgpu-core: 30 without nvidia.com/vgpu-memory is forbidden on this node "
        "(loneHalves: forbid in the agent's config); ask for nvidia.com/vgpu-memory too"
    )
    assert "nvidia.com/vgpu-memory: 4 without nvidia.com/vgpu-core" in memory.value.message


@pytest.mark.parametrize(
    "allocation",
    [
        replace(LONE_CORE, memory=MEMORY),
        replace(LONE_CORE, started=True),
        replace(LONE_MEMORY, started=True),
        replace(LONE_CORE, implicit_units=MEMORY),
        replace(LONE_CORE, core=(), implicit_units=(*CORE, *MEMORY), replicas=(f"{UUID}::0",)),
        replace(LONE_CORE, uuid="GPU-gone"),
    ],
    ids=["both", "started", "started memory", "taken over", "replica", "gone"],
)
def test_nobody_else_is(allocation: Allocation) -> None:
    check_not_lone(FORBIDDEN, allocation)


def test_without_a_word_in_the_config_both_are_allowed() -> None:
    check_not_lone(layout("allow"), LONE_CORE)
    check_not_lone(layout("allow"), LONE_MEMORY)


def test_a_family_has_one_answer() -> None:
    entries = "[{family: vgpu, devices: [0], loneHalves: forbid}, {family: vgpu, devices: [1]}]"
    with pytest.raises(ConfigError) as caught:
        parse_config(f"version: v1\nsharing:\n  fractional: {entries}\n", "c.yaml")

    assert caught.value.message == (
        "c.yaml line 3: family vgpu has loneHalves allow here and another on line 3; say it in "
        "each entry of the family"
    )


def test_a_change_drains_nothing_and_offers_nothing_again() -> None:
    book = AllocationBook.of([LONE_CORE])

    after = in_force(FORBIDDEN, GPUS, book)

    assert [(each.drains, each.lone_halves) for each in after.gpus] == [
        (False, LoneHalves.FORBID)
    ] * 2
    assert newly_offered(layout("allow"), after) == set()


def test_a_gpu_that_drains_goes_by_the_config_too() -> None:
    other = replace(LONE_CORE, memory_unit_bytes=2 * GIB)

    (first, _) = in_force(FORBIDDEN, GPUS, AllocationBook.of([other])).gpus

    assert first.drains
    assert first.lone_halves is LoneHalves.FORBID
