"""The memory that core alone means, while containers that have ended still have it on the book."""

from dataclasses import replace

import pytest

from deviceplugin.model.allocations import Allocation, AllocationBook
from deviceplugin.model.gpus import Gpu
from deviceplugin.model.units import Half, unit_name
from deviceplugin.policy.devices.layout import Layout, SharedGpu
from deviceplugin.policy.pairing.implicit_units import MemoryNotFreeYet, complete_start
from libvgpu.errors import AllocationRefused
from libvgpu.limits import ComputeMode, Family

GIB = 1 << 30
UUID = "GPU-0"
LAYOUT = Layout(
    "nvidia.com", (SharedGpu(Gpu(0, UUID, "t", 16 * GIB), Family.VGPU, GIB, ComputeMode.STRICT),)
)


def allocation(name: str, core: range = range(0), memory: range = range(0)) -> Allocation:
    return Allocation(
        name,
        Family.VGPU,
        UUID,
        GIB,
        tuple(unit_name(UUID, Half.CORE, n) for n in core),
        tuple(unit_name(UUID, Half.MEMORY, n) for n in memory),
        settled=True,
    )


LONE = allocation("lone", core=range(50))  # means 8 units of memory
SMALL, LARGE = allocation("small", memory=range(4)), allocation("large", memory=range(4, 16))


def start(*others: Allocation, shown: tuple[Allocation, ...] | None) -> Allocation:
    units = None if shown is None else {unit for each in (LONE, *shown) for unit in each.units}
    return complete_start(LAYOUT, AllocationBook.of([*others, LONE]), LONE, units)


def test_what_podresources_does_not_show_any_more_may_be_free_in_a_moment() -> None:
    with pytest.raises(MemoryNotFreeYet, match="8 units of 1 GiB, but 0 are free"):
        start(SMALL, LARGE, shown=(SMALL,))

    assert len(start(SMALL, shown=(SMALL,)).implicit_units) == 8


def test_what_runs_is_not_waited_for() -> None:
    for shown in ((SMALL, LARGE), (LARGE,), None):
        with pytest.raises(AllocationRefused, match="but 0 are free") as refused:
            start(SMALL, LARGE, shown=shown)
        assert not isinstance(refused.value, MemoryNotFreeYet)


def test_without_podresources_what_it_missed_before_counts() -> None:
    with pytest.raises(MemoryNotFreeYet):
        start(SMALL, replace(LARGE, missing_since=7.0), shown=None)
