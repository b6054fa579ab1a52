"""Which sharing is in force while slices of an earlier config live: pure, GPU by GPU."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deviceplugin.model.allocations import Allocation, AllocationBook
from deviceplugin.model.concurrency import Concurrency
from deviceplugin.model.fractional import Placement
from deviceplugin.model.units import Half, gpu_of
from deviceplugin.policy.devices import offer
from deviceplugin.policy.devices.draining import changes, draining, in_force
from deviceplugin.policy.devices.layout import Layout, SharedGpu
from deviceplugin.policy.pairing import implicit_units, pairing
from libvgpu.errors import AllocationRefused
from libvgpu.limits import ComputeMode, Family
from support.node.units import GIB, NOW, holding, names, preferred
from support.node.units import shared_gpu as shared

VGPU, MPS = Family.VGPU, Family.MPS
GPUS = tuple(shared(n).gpu for n in range(3))


def held(number: int, name: str = "a", family: Family = VGPU, unit_bytes: int = GIB) -> Allocation:
    how = {"settled": True, "compute": ComputeMode.ELASTIC}
    uuid = f"GPU-{number}"
    return holding(name, range(10), range(2), uuid, family=family, unit_bytes=unit_bytes, **how)


def layout(*gpus: SharedGpu) -> Layout:
    return Layout("nvidia.com", gpus)


def test_without_slices_and_with_those_that_fit_the_config_holds_at_once() -> None:
    wanted = layout(shared(0, MPS), replace(shared(1), placement=Placement.SPREAD))

    assert in_force(wanted, GPUS, AllocationBook()) == wanted
    assert in_force(wanted, GPUS, AllocationBook.of([held(1)])) == wanted


@pytest.mark.parametrize(
    "new",
    [
        shared(0, MPS),
        shared(0, VGPU, 2 * GIB),
        replace(shared(0), concurrency=Concurrency.MPS),
        None,
    ],
    ids=["family", "unit", "concurrency", "gone"],
)
def test_a_gpu_keeps_family_unit_and_compute_of_its_slices_until_the_last_ends(
    new: SharedGpu | None,
) -> None:
    wanted = layout(*([new] if new else []), shared(1))
    book = AllocationBook.of([held(0), held(0, "b"), held(1, "c")])

    for ended in ("a", "b"):
        now = in_force(wanted, GPUS, book).find("GPU-0")
        assert now is not None
        assert (now.family, now.memory_unit_bytes, now.drains) == (VGPU, GIB, True)
        assert now.compute is ComputeMode.ELASTIC
        assert now.concurrency is Concurrency.TIME_SLICES
        assert in_force(wanted, GPUS, book).find("GPU-1") == wanted.find("GPU-1")
        book.drop(ended)
    assert in_force(wanted, GPUS, book) == wanted


def test_what_drains_keeps_the_concurrency_of_its_slices_and_says_so() -> None:
    book = AllocationBook.of([replace(held(0), concurrency=Concurrency.MPS)])
    wanted = layout(shared(0))

    now = in_force(wanted, GPUS, book)

    assert now.gpus[0].drains
    assert now.gpus[0].served_by_mps
    assert draining(now, wanted, book) == {
        "GPU-0": "vgpu elastic under one MPS server by units of 1 GiB until 1 slices have ended, "
        "then vgpu strict by units of 1 GiB"
    }


def test_free_units_of_a_gpu_that_drains_are_withdrawn_and_held_ones_never() -> None:
    book = AllocationBook.of([held(0)])
    now = in_force(layout(shared(0, MPS), shared(1)), GPUS, book)

    gone = offer.withdrawn(now, book)

    everything = {u for half in Half for u in offer.unit_names(now.gpus[0], half)}
    assert gone == everything - set(book.allocations["a"].units)
    assert [u for u, _ in offer.advertised(now, MPS, Half.CORE)] == []


def test_units_of_two_sizes_in_one_family_are_never_added_up() -> None:
    """GPU 0 drains with 16 units of 1 GiB; GPU 1 has 8 of 2 GiB."""
    book = AllocationBook.of([held(0)])
    now = in_force(layout(shared(0, VGPU, 2 * GIB), shared(1, VGPU, 2 * GIB)), GPUS, book)
    chosen = preferred(now, book, Half.MEMORY, 8)

    assert {gpu_of(unit) for unit in chosen} == {"GPU-1"}
    fresh = pairing.allocate(now, book, VGPU, Half.MEMORY, chosen, NOW, "new")
    assert fresh.memory_bytes == 16 * GIB
    with pytest.raises(AllocationRefused, match="not all of several; a GPU has 8"):
        preferred(now, book, Half.MEMORY, 9)


def test_nothing_new_comes_to_a_gpu_that_drains() -> None:
    book = AllocationBook.of([held(0)])
    now = in_force(layout(shared(0, MPS)), GPUS, book)

    with pytest.raises(AllocationRefused, match="still carries slices of the sharing it had"):
        pairing.allocate(now, book, VGPU, Half.CORE, ["GPU-0::c50"], NOW, "new")
    with pytest.raises(AllocationRefused, match="no GPU of this node is offered for it"):
        preferred(now, book, Half.CORE, 1, ["GPU-0::c50"])
    with pytest.raises(AllocationRefused, match="names units that are not offered"):
        pairing.allocate(now, book, MPS, Half.CORE, ["GPU-0::c50"], NOW, "new")


def test_a_container_whose_first_half_was_there_before_still_gets_the_second() -> None:
    first = replace(held(0), memory=(), settled=False, changed_s=NOW)
    book = AllocationBook.of([first])
    now = in_force(layout(shared(0, VGPU, 2 * GIB), shared(1, VGPU, 2 * GIB)), GPUS, book)
    offered = [*names(0, Half.MEMORY, range(16)), *names(1, Half.MEMORY, range(8))]

    chosen = preferred(now, book, Half.MEMORY, 12, offered)
    whole = pairing.allocate(now, book, VGPU, Half.MEMORY, chosen, NOW, "new")

    assert whole.allocation_id == "a"
    assert whole.memory_bytes == 12 * GIB


def test_what_an_init_container_passes_on_is_nothing_new() -> None:
    init = held(0)
    book = AllocationBook.of([init])
    now = in_force(layout(shared(0, MPS)), GPUS, book)

    later = pairing.allocate(now, book, VGPU, Half.CORE, init.core[:5], NOW, "new")

    assert (later.allocation_id, later.memory_unit_bytes) == ("new", GIB)


def test_a_lone_half_gets_its_default_in_the_units_it_was_given_in() -> None:
    lone = replace(held(0), core=names(0, Half.CORE, range(25)), memory=())
    book = AllocationBook.of([lone])
    now = in_force(layout(shared(0, VGPU, 4 * GIB)), GPUS, book)

    done = implicit_units.complete_start(now, book, lone)

    assert done.memory_bytes == 4 * GIB
    assert len(done.implicit_units) == 4


def test_what_changes_is_told_gpu_by_gpu() -> None:
    before = layout(shared(0), shared(1), shared(2))
    wanted = layout(shared(0, MPS), shared(1, VGPU, 2 * GIB), shared(2))
    book = AllocationBook.of([held(0), held(0, "b")])
    after = in_force(wanted, GPUS, book)

    drains, at_once = changes(before, after, wanted, book)

    assert (drains.uuid, drains.drains, drains.slices) == ("GPU-0", True, 2)
    assert (drains.now, drains.then) == (
        "vgpu elastic by units of 1 GiB",
        "mps by units of 1 GiB",
    )
    assert (at_once.uuid, at_once.drains, at_once.now) == (
        "GPU-1",
        False,
        "vgpu strict by units of 2 GiB",
    )
    assert draining(after, wanted, book) == {
        "GPU-0": "vgpu elastic by units of 1 GiB until 2 slices have ended, then mps by units "
        "of 1 GiB"
    }


_SHARES = st.sampled_from([(VGPU, GIB), (VGPU, 2 * GIB), (MPS, GIB), None])


@settings(max_examples=200)
@given(
    wanted=st.tuples(_SHARES, _SHARES, _SHARES),
    slices=st.tuples(_SHARES, _SHARES, _SHARES),
    ended=st.sets(st.integers(0, 2)),
)
def test_whatever_is_edited_what_is_held_is_listed_by_its_own_family_and_stays(
    wanted: tuple[tuple[Family, int] | None, ...],
    slices: tuple[tuple[Family, int] | None, ...],
    ended: set[int],
) -> None:
    config = layout(*(shared(n, *how) for n, how in enumerate(wanted) if how))
    book = AllocationBook.of(held(n, f"a{n}", *how) for n, how in enumerate(slices) if how)
    for number in ended:
        book.drop(f"a{number}")
    now = in_force(config, GPUS, book)

    gone = offer.withdrawn(now, book)
    for allocation in book.allocations.values():
        for half in Half:
            listed = {u for u, _ in offer.advertised(now, allocation.family, half)}
            assert set(allocation.of(half)) <= listed - gone
            for other in {VGPU, MPS} - {allocation.family}:
                elsewhere = {u for u, _ in offer.advertised(now, other, half)}
                assert not elsewhere & set(allocation.of(half))
    for gpu in GPUS:
        found = now.find(gpu.uuid)
        if not book.on_gpu(gpu.uuid):
            assert found == config.find(gpu.uuid)
