"""The memory that core alone means, while containers that have ended still have it on the book."""

from dataclasses import replace

import pytest

from deviceplugin.model.allocations import Allocation, AllocationBook
from deviceplugin.policy.pairing.implicit_units import MemoryNotFreeYet, complete_start
from libvgpu.errors import AllocationRefused
from support.node.units import holding, layout_of

LAYOUT = layout_of(16)
LONE = holding("lone", core=range(50), settled=True)  # means 8 units of memory
SMALL, LARGE = (
    holding(name, memory=units, settled=True)
    for name, units in (("small", range(4)), ("large", range(4, 16)))
)


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
