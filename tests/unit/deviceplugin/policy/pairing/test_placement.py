"""Which GPU a fraction is put on, and which GPUs a request of several gets."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from deviceplugin.model.allocations import Allocation, AllocationBook, Owner
from deviceplugin.model.fractional import Placement
from deviceplugin.model.units import Half, gpu_of, unit_name
from deviceplugin.policy.devices import offer
from deviceplugin.policy.pairing import implicit_units, pairing
from libvgpu.errors import AllocationRefused
from libvgpu.limits import Family
from support.node.units import GIB, NOW, holding, layout_of, preferred

VGPU, MPS = Family.VGPU, Family.MPS
OWNER = Owner("team", "pod", "main")


def slice_on(gpu: int, core: int, memory: int, first: int = 0) -> Allocation:
    of_core, of_memory = (range(first, first + count) for count in (core, memory))
    uuid = f"GPU-{gpu}"
    return holding(f"on-{gpu}-{first}", of_core, of_memory, uuid, settled=True, owner=OWNER)


def gpus_of(units: Sequence[str]) -> set[str]:
    return {gpu_of(unit) for unit in units}


@pytest.mark.parametrize(
    ("placement", "gpu"), [(Placement.BINPACK, "GPU-0"), (Placement.SPREAD, "GPU-1")]
)
def test_of_gpus_with_as_much_of_the_other_half_the_fullest_or_the_emptiest_is_taken(
    placement: Placement, gpu: str
) -> None:
    layout = layout_of(16, 16, placement=placement)
    book = AllocationBook.of([slice_on(0, 60, 4), slice_on(1, 30, 4)])

    assert gpus_of(preferred(layout, book, Half.CORE, 20)) == {gpu}


@pytest.mark.parametrize("placement", list(Placement))
def test_a_gpu_whose_memory_is_free_for_certain_comes_first(placement: Placement) -> None:
    seems_ended = replace(slice_on(0, 0, 8), missing_since=NOW)
    layout = layout_of(16, 16, placement=placement)

    assert gpus_of(preferred(layout, AllocationBook.of([seems_ended]), Half.CORE, 50)) == {"GPU-1"}
    # A pair that has room there alone comes before: its memory is asked of the kubelet.
    book = AllocationBook.of([seems_ended, slice_on(1, 0, 4)])
    assert gpus_of(preferred(layout, book, Half.CORE, 50)) == {"GPU-0"}


@pytest.mark.parametrize(("half", "count"), [(Half.CORE, 200), (Half.MEMORY, 32)])
def test_whole_gpus_are_free_ones_and_close_to_each_other(half: Half, count: int) -> None:
    asked: list[tuple[Sequence[str], int]] = []

    def closest(free: Sequence[str], wanted: int, required: Sequence[str]) -> Sequence[str]:
        asked.append((free, wanted))
        return free[-wanted:]

    book = AllocationBook.of([slice_on(1, 1, 1)])
    units = preferred(layout_of(16, 16, 16, 16), book, half, count, closest=closest)

    assert asked == [(["GPU-0", "GPU-2", "GPU-3"], 2)]
    assert gpus_of(units) == {"GPU-2", "GPU-3"}
    assert len(set(units)) == count


@pytest.mark.parametrize(
    ("half", "count", "said"),
    [
        (Half.CORE, 150, "not a multiple of 100"),
        (Half.CORE, 300, "whole GPUs, of which 2 of 3 are free"),
        (Half.MEMORY, 24, "not all of several; a GPU has 16"),
        (Half.CORE, 0, "asks for nothing; ask for 1 to 100"),
    ],
)
def test_what_is_no_number_of_whole_free_gpus_is_refused(half: Half, count: int, said: str) -> None:
    book = AllocationBook.of([slice_on(0, 1, 1)])

    with pytest.raises(AllocationRefused, match=said):
        preferred(layout_of(16, 16, 16), book, half, count)


def test_the_mps_family_has_whole_gpus_too() -> None:
    layout = layout_of(16, 16, family=MPS)

    assert len(set(preferred(layout, AllocationBook(), Half.CORE, 200))) == 200
    with pytest.raises(AllocationRefused, match="not a multiple of 100"):
        preferred(layout, AllocationBook(), Half.CORE, 150)


def test_whole_gpus_come_with_all_their_memory_whether_asked_for_or_not() -> None:
    layout, book = layout_of(16, 16, 16), AllocationBook()
    units = preferred(layout, book, Half.CORE, 200)
    alone = pairing.allocate(layout, book, VGPU, Half.CORE, units, NOW, "id")
    book.put(alone)

    # Asked for: all of theirs joins, less is refused.
    with pytest.raises(AllocationRefused, match="ask for all 32 units"):
        preferred(layout, book, Half.MEMORY, 8)
    memory = preferred(layout, book, Half.MEMORY, 32)
    both = pairing.allocate(layout, book, VGPU, Half.MEMORY, memory, NOW, "x")
    assert (both.allocation_id, both.uuids, both.settled) == ("id", ("GPU-0", "GPU-1"), True)

    # Not asked for: its units are implicit when the container starts, and withdrawn.
    done = implicit_units.complete_start(layout, book, alone)
    book.put(done)
    assert done.memory_bytes == 32 * GIB
    assert offer.withdrawn(layout, book) == set(memory)


def test_a_gpu_in_use_is_no_part_of_whole_gpus() -> None:
    layout, book = layout_of(16, 16), AllocationBook.of([slice_on(1, 0, 2)])
    units = [unit_name(f"GPU-{gpu}", Half.CORE, n) for gpu in (0, 1) for n in range(100)]

    with pytest.raises(AllocationRefused, match="whole GPUs, but GPU GPU-1 carries team/pod/main"):
        pairing.allocate(layout, book, VGPU, Half.CORE, units, NOW, "id")
