"""What a raise takes out of a GPU: whole or not at all, from the top, and back when it is over."""

from deviceplugin.config.loading import LimitRule
from deviceplugin.model.allocations import Allocation, AllocationBook
from deviceplugin.model.gpus import Gpu
from deviceplugin.model.overrides import Override
from deviceplugin.policy.effective_limits import PLENTY, RaiseRoom, asked_limits, effective_limits
from deviceplugin.policy.layout import Layout, SharedGpu
from deviceplugin.policy.raise_units import fit_raise, reach_of, room_of
from libvgpu.limits import ComputeMode, Family

GIB = 1 << 30
GPU = "GPU-0"
LAYOUT = Layout(
    "nvidia.com", (SharedGpu(Gpu(0, GPU, "t", 16 * GIB), Family.VGPU, GIB, ComputeMode.STRICT),)
)


def units(letter: str, *numbers: int) -> tuple[str, ...]:
    return tuple(f"{GPU}::{letter}{n}" for n in numbers)


def allocation(name: str, first: int = 0, core: int = 40, memory: int = 8) -> Allocation:
    return Allocation(
        name,
        Family.VGPU,
        GPU,
        GIB,
        core=units("c", *range(first, first + core)),
        memory=units("m", *range(first // 10, first // 10 + memory)),
    )


def fitted(
    book: AllocationBook, one: Allocation, *, core: int, memory: int
) -> tuple[Allocation, str | None]:
    asked = asked_limits(one, ComputeMode.STRICT)
    rule, override = LimitRule(allow_raise=True), Override(core, memory * GIB)
    wanted = effective_limits(asked, rule, override, PLENTY)
    new, problem = fit_raise(LAYOUT, book, one, asked, wanted)
    book.put(new)
    return new, problem


def test_it_takes_the_highest_free_units_and_gives_back_what_it_needs_no_more() -> None:
    book = AllocationBook.of([one := allocation("a")])

    one, problem = fitted(book, one, core=42, memory=9)
    assert problem is None
    assert one.raised == (*units("c", 98, 99), *units("m", 15))
    assert room_of(one) == RaiseRoom(2, GIB)
    assert book.withdrawn() == set(one.raised)
    one, _ = fitted(book, one, core=43, memory=8)
    assert one.raised == units("c", 98, 99, 97)
    one, _ = fitted(book, one, core=1, memory=1)
    assert one.raised == ()
    assert book.withdrawn() == set()


def test_each_half_fits_whole_or_stays_as_it_was() -> None:
    book = AllocationBook.of([one := allocation("a"), allocation("b", first=80, core=20, memory=4)])
    one, _ = fitted(book, one, core=50, memory=9)
    assert reach_of(LAYOUT, book, one) == RaiseRoom(40, 4 * GIB)

    one, problem = fitted(book, one, core=81, memory=12)

    assert problem is not None and "core 81" in problem and "at most 80 is allowed" in problem
    assert room_of(one) == RaiseRoom(10, 4 * GIB)
    assert not set(one.raised) & {*book.allocations["b"].core, *book.allocations["b"].memory}


def test_a_gpu_that_is_shared_in_another_way_by_now_has_nothing_for_it() -> None:
    one = allocation("a")
    old = Allocation("b", Family.VGPU, GPU, 2 * GIB, core=units("c", 50), memory=units("m", 10))

    assert reach_of(LAYOUT, AllocationBook.of([one, old]), old) == RaiseRoom(0, 0)
    assert reach_of(Layout("nvidia.com", ()), AllocationBook.of([one]), one) == RaiseRoom(0, 0)
