"""Each unit counts once, for who has it now; what a start will use up counts before it does."""

from dataclasses import replace

import pytest

from deviceplugin.model.allocations import Allocation, AllocationBook, Owner
from deviceplugin.model.units import Half, unit_name
from deviceplugin.policy.pairing.implicit_units import complete_start
from deviceplugin.policy.published.slices import Holdings, half_until_s, published_slices
from support.node.units import holding as slice_of
from support.node.units import layout_of, names

A, B = "GPU-0", "GPU-1"
LAYOUT = layout_of(16, 16)
Units = dict[str, tuple[int, int]]


def holdings(*allocations: Allocation) -> Holdings:
    book = AllocationBook.of(allocations)
    return Holdings(tuple(book.allocations.values()), book.shared_units())


def units(*allocations: Allocation) -> dict[str, Units]:
    return {each.id: dict(each.units) for each in published_slices(LAYOUT, holdings(*allocations))}


def total(*allocations: Allocation) -> tuple[int, int]:
    """All that is published of GPU 0."""
    found = [each.get(A, (0, 0)) for each in units(*allocations).values()]
    return sum(core for core, _ in found), sum(memory for _, memory in found)


def test_a_pair_has_what_it_was_given_and_its_name_once_it_is_known() -> None:
    pair = slice_of("p", range(30), range(4))
    named = replace(pair, owner=Owner("team", "pod", "main"))

    (before,), (after,) = (published_slices(LAYOUT, holdings(each)) for each in (pair, named))

    assert (dict(before.units), before.pod, before.container) == ({A: (30, 4)}, None, "")
    assert (after.units, after.pod, after.container) == (before.units, ("team", "pod"), "main")


def test_a_raise_and_a_default_are_among_them() -> None:
    raised = replace(
        slice_of("r", range(30), range(4)),
        raised=(*names(A, Half.CORE, range(90, 100)), *names(A, Half.MEMORY, range(14, 16))),
    )

    assert units(raised) == {"r": {A: (40, 6)}}
    started = complete_start(
        LAYOUT, AllocationBook.of([slice_of("l", range(50))]), slice_of("l", range(50))
    )
    assert units(started) == {"l": {A: (50, 8)}}


@pytest.mark.parametrize(("core", "memory"), [(50, 8), (30, 4), (1, 1), (100, 16)])
def test_core_alone_counts_with_the_memory_that_it_will_get(core: int, memory: int) -> None:
    waiting = slice_of("w", range(core))
    started = complete_start(LAYOUT, AllocationBook.of([waiting]), waiting)

    assert units(waiting) == {"w": {A: (core, memory)}} == units(started)


def test_memory_alone_takes_no_core() -> None:
    assert units(slice_of("m", memory=range(3))) == {"m": {A: (0, 3)}}


def test_whole_gpus_count_on_each_of_them_before_and_after_the_start() -> None:
    whole = replace(
        slice_of("g"), core=(*names(A, Half.CORE, range(100)), *names(B, Half.CORE, range(100)))
    )
    started = complete_start(LAYOUT, AllocationBook.of([whole]), whole)

    assert units(whole) == {"g": {A: (100, 16), B: (100, 16)}} == units(started)


def test_units_that_an_init_container_passed_on_count_for_who_has_them_now() -> None:
    init = slice_of("init", range(50), range(8))
    main = slice_of("main", range(20), range(4))

    assert units(init, main) == {"init": {A: (30, 4)}, "main": {A: (20, 4)}}
    assert units(init, slice_of("main", range(50), range(8)))["init"] == {A: (0, 0)}


def test_what_comes_for_core_alone_after_an_init_container_is_told_as_it_will_be() -> None:
    init, main = slice_of("init", range(50), range(8)), slice_of("main", range(50))
    started = complete_start(LAYOUT, AllocationBook.of([init, main]), main)

    # It takes the highest units, the init container has the lowest.
    assert total(init, main) == total(init, started) == (50, 16)

    large = slice_of("init", range(50), range(12))
    started = complete_start(LAYOUT, AllocationBook.of([large, main]), main)
    assert total(large, main) == total(large, started) == (50, 16)


def test_a_default_counts_once_for_a_chain_of_init_containers() -> None:
    first, second, main = (slice_of(name, range(50)) for name in ("i1", "i2", "main"))
    started = complete_start(LAYOUT, AllocationBook.of([first]), first)

    assert total(first, second, main) == (50, 8)
    assert total(started, second, main) == (50, 8)


def test_two_containers_that_follow_an_init_container_do_not_both_have_its_memory() -> None:
    init = slice_of("init", range(60))  # it will have 9 of 16 units, and each of the others 4
    one, two = slice_of("one", range(30)), slice_of("two", range(30, 60))
    book = AllocationBook.of([init, one, two])
    alone = total(init)
    for each in (init, one, two):
        book.put(complete_start(LAYOUT, book, each))

    assert total(init, one, two) == total(*book.allocations.values())
    assert alone == (60, 9)


def test_a_start_that_waits_for_memory_counts_with_all_of_it() -> None:
    assert total(slice_of("m", memory=range(12)), slice_of("w", range(50))) == (50, 12 + 8)


def test_replicas_are_no_slices() -> None:
    replica = replace(slice_of("r", range(25), range(1)), replicas=(f"{A}::0",))

    assert units(replica) == {}


def test_whose_a_half_is_is_not_told_while_the_other_may_come() -> None:
    half = replace(slice_of("h", range(30)), owner=Owner("team", "pod", "main"), changed_s=100.0)

    assert half_until_s(half, 100.0) == 105.0
    (waiting,) = published_slices(LAYOUT, Holdings((half,), halves={"h"}))
    (lone,) = published_slices(LAYOUT, Holdings((half,)))
    assert (waiting.pod, waiting.container) == (None, "")
    assert waiting.units == lone.units
    assert lone.pod == ("team", "pod")

    for done in (
        replace(half, settled=True),
        replace(half, memory=(unit_name(A, Half.MEMORY, 0),)),
        replace(half, changed_s=94.9),
    ):
        assert half_until_s(done, 100.0) is None


def test_the_book_counts_what_is_published_and_nothing_else() -> None:
    book = AllocationBook()
    pair = slice_of("p", range(30), range(4))
    book.put(pair)
    counted = book.changes

    for same in (replace(pair, settled=True), replace(pair, missing_since=1.0, started=True)):
        book.put(same)
    assert book.changes == counted

    book.put(replace(pair, owner=Owner("team", "pod", "main")))
    book.put(replace(pair, owner=Owner("team", "pod", "main"), memory=pair.memory[:2]))
    book.drop("p")
    book.drop("p")
    assert book.changes == counted + 3
