"""What a raise takes out of a GPU: whole or not at all, from the top, and back when it is over."""

from dataclasses import replace

from deviceplugin.model.allocations import Allocation, AllocationBook
from deviceplugin.model.limit_rules import LimitRule
from deviceplugin.model.overrides import Override
from deviceplugin.policy.devices.layout import Layout
from deviceplugin.policy.limits.asked import asked_on
from deviceplugin.policy.limits.resolver import resolve
from deviceplugin.policy.limits.rules import (
    RaiseRoom,
    RaiseUnits,
    room_on,
    taken_by,
    with_units,
)
from libvgpu.limits import Family
from support.node.units import GIB, holding, layout_of

GPU = "GPU-0"
LAYOUT = layout_of(16)


def units(letter: str, *numbers: int) -> tuple[str, ...]:
    return tuple(f"{GPU}::{letter}{n}" for n in numbers)


def allocation(name: str, first: int = 0, core: int = 40, memory: int = 8) -> Allocation:
    memory_first = first // 10
    return holding(name, range(first, first + core), range(memory_first, memory_first + memory))


def fitted(
    book: AllocationBook, one: Allocation, *, core: int, memory: int
) -> tuple[Allocation, str | None]:
    one = replace(one, override=Override(core, memory * GIB))
    asked, rule = asked_on(LAYOUT, one), LimitRule(allow_raise=True)
    resolved = resolve(one, asked, rule, room_on(LAYOUT, book, one), {})
    new = with_units(LAYOUT, book, one, resolved.raised)
    book.put(new)
    return new, resolved.refusal


def test_it_takes_the_highest_free_units_and_gives_back_what_it_needs_no_more() -> None:
    book = AllocationBook.of([one := allocation("a")])

    one, problem = fitted(book, one, core=42, memory=9)
    assert problem is None
    assert one.raised == (*units("c", 98, 99), *units("m", 15))
    assert taken_by(one) == RaiseRoom(taken=RaiseUnits(2, 1))
    assert book.withdrawn() == set(one.raised)
    one, _ = fitted(book, one, core=43, memory=8)
    assert one.raised == units("c", 98, 99, 97)
    one, _ = fitted(book, one, core=1, memory=1)
    assert one.raised == ()
    assert book.withdrawn() == set()


def test_each_half_fits_whole_or_stays_as_it_was() -> None:
    book = AllocationBook.of([one := allocation("a"), allocation("b", first=80, core=20, memory=4)])
    one, _ = fitted(book, one, core=50, memory=9)
    assert room_on(LAYOUT, book, one) == RaiseRoom(RaiseUnits(10, 1), RaiseUnits(30, 3))

    one, problem = fitted(book, one, core=81, memory=12)

    assert problem is not None and "core 81" in problem and "at most 80 is allowed" in problem
    assert taken_by(one).taken == RaiseUnits(10, 4)
    assert not set(one.raised) & {*book.allocations["b"].core, *book.allocations["b"].memory}


def test_a_gpu_that_is_shared_in_another_way_by_now_has_nothing_for_it() -> None:
    one = allocation("a")
    old = Allocation("b", Family.VGPU, GPU, 2 * GIB, core=units("c", 50), memory=units("m", 10))

    assert room_on(LAYOUT, AllocationBook.of([one, old]), old) == RaiseRoom()
    assert room_on(Layout("nvidia.com", ()), AllocationBook.of([one]), one) == RaiseRoom()


def test_what_is_free_of_a_gpu_in_replicas_is_for_other_replicas() -> None:
    (gpu,) = LAYOUT.gpus
    divided = replace(gpu, family=Family.MPS, memory_unit_bytes=4 * GIB, replicas=4)
    one = Allocation(
        "a",
        Family.MPS,
        GPU,
        4 * GIB,
        replicas=(f"{GPU}::0",),
        implicit_units=(*units("c", *range(25)), *units("m", 0)),
    )

    layout = Layout("nvidia.com", (divided,))

    assert room_on(layout, AllocationBook.of([one]), one) == RaiseRoom()
