"""Which GPU a fraction is put on where both its amounts are known, or its GPU was chosen."""

from collections.abc import Mapping, Sequence
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deviceplugin.model.fractional import Placement
from deviceplugin.model.gpus import Gpu
from deviceplugin.model.units import Half, unit_name
from deviceplugin.policy.devices.layout import SharedGpu
from deviceplugin.policy.devices.offer import FreeUnits
from deviceplugin.policy.pairing import placement
from deviceplugin.policy.pairing.placement import Need
from libvgpu.errors import AllocationRefused
from libvgpu.limits import ComputeMode, Family

GIB = 1 << 30
UNITS = 80


def room(
    index: int,
    half: Half,
    core: int,
    memory: int,
    units: int = UNITS,
    certain: int | None = None,
) -> FreeUnits:
    """A GPU with so much of both halves free, as it is seen when one of them is asked for."""
    gpu = Gpu(index, f"GPU-{index}", "test", units * GIB)
    own, other = (core, memory) if half is Half.CORE else (memory, core)
    return FreeUnits(
        SharedGpu(gpu, Family.VGPU, GIB, ComputeMode.STRICT),
        tuple(unit_name(gpu.uuid, half, n) for n in range(own)),
        0,
        other,
        other if certain is None else certain,
        (core, memory) == (100, units),
    )


def rooms(half: Half, *free: tuple[int, int]) -> dict[str, FreeUnits]:
    return {f"GPU-{i}": room(i, half, core, memory) for i, (core, memory) in enumerate(free)}


def one(
    found: Mapping[str, FreeUnits],
    half: Half,
    need: Need | None,
    wish: Placement = Placement.BINPACK,
    chosen: str = "",
    count: int | None = None,
) -> str:
    asked = count or (10 if need is None else (need.core if half is Half.CORE else need.memory))
    return placement.one_gpu(found, half, asked, wish, "it", need, chosen)


both_halves = pytest.mark.parametrize("half", list(Half))


@both_halves
def test_spread_takes_the_emptiest_gpu_that_holds_both(half: Half) -> None:
    found = rooms(half, (60, 70), (100, 4), (90, 60), (5, 80))

    assert one(found, half, Need(10, 8), Placement.SPREAD) == "GPU-2"


@both_halves
def test_of_equal_gpus_the_first_is_taken(half: Half) -> None:
    for wish in Placement:
        assert one(rooms(half, (50, 40), (50, 40), (50, 40)), half, Need(10, 8), wish) == "GPU-0"


@both_halves
def test_the_chosen_gpu_is_taken_where_it_holds_both(half: Half) -> None:
    found = rooms(half, (100, 80), (20, 20), (50, 50), (5, 60))

    assert one(found, half, Need(10, 8), chosen="GPU-2") == "GPU-2"
    assert one(found, half, Need(10, 8), chosen="GPU-3") == "GPU-1"  # it lacks core
    assert one(found, half, Need(10, 8), chosen="GPU-9") == "GPU-1"  # nobody has it


def test_core_alone_needs_the_share_of_memory_that_comes_with_it() -> None:
    found = rooms(Half.CORE, (100, 80), (60, 30), (50, 39))

    assert one(found, Half.CORE, Need(50, 0, default_core=50)) == "GPU-0"
    assert one(found, Half.CORE, Need(49, 0, default_core=49)) == "GPU-2"


def test_core_alone_goes_where_no_ended_container_is_waited_for() -> None:
    found = {
        "GPU-0": room(0, Half.CORE, 50, 40, certain=10),
        "GPU-1": room(1, Half.CORE, 100, 80),
    }

    assert one(found, Half.CORE, Need(30, 0, default_core=30)) == "GPU-1"
    assert one(found, Half.CORE, Need(30, 24)) == "GPU-0"  # the kubelet is asked for memory


def test_memory_alone_goes_to_the_gpu_with_the_least_left_over() -> None:
    found = rooms(Half.MEMORY, (100, 80), (0, 70), (50, 40))

    assert one(found, Half.MEMORY, Need(0, 8)) == "GPU-1"  # 0.775 GPU is left of it, 0.9 of 2
    assert one(found, Half.MEMORY, Need(0, 8), Placement.SPREAD) == "GPU-0"


@given(
    free=st.lists(
        st.tuples(st.integers(0, 100), st.integers(0, 20_000), st.integers(1, 20_000)),
        min_size=2,
        max_size=8,
    )
)
def test_what_is_left_orders_gpus_as_the_exact_shares_do(free: list[tuple[int, int, int]]) -> None:
    def exact(core: int, memory: int, units: int) -> Fraction:
        return Fraction(core, 100) + Fraction(min(memory, units), units)

    def ours(core: int, memory: int, units: int) -> int:
        return placement.left(core + 7, min(memory, units) + 3, units, 7, 3)

    for one_gpu in free:
        for other in free:
            a, b = exact(*one_gpu), exact(*other)
            assert (ours(*one_gpu) > ours(*other)) == (a > b)
            assert (ours(*one_gpu) == ours(*other)) == (a == b)


@given(
    free=st.lists(st.tuples(st.integers(0, 100), st.integers(0, UNITS)), min_size=1, max_size=8),
    need=st.builds(Need, st.integers(1, 100), st.integers(1, UNITS)),
    half=st.sampled_from(Half),
    wish=st.sampled_from(Placement),
    chosen=st.integers(0, 8),
)
def test_knowing_both_amounts_never_takes_a_gpu_that_lacks_one_while_another_has_both(
    free: list[tuple[int, int]], need: Need, half: Half, wish: Placement, chosen: int
) -> None:
    found = rooms(half, *free)
    count = need.core if half is Half.CORE else need.memory
    holding = {
        f"GPU-{i}"
        for i, (core, memory) in enumerate(free)
        if core >= need.core and memory >= need.memory
    }
    try:
        unknown = one(found, half, None, wish, count=count)
    except AllocationRefused:
        assert not holding
        with pytest.raises(AllocationRefused):
            one(found, half, need, wish, f"GPU-{chosen}")
        return
    known = one(found, half, need, wish, f"GPU-{chosen}")
    if holding:
        assert known in holding
        assert unknown in holding, "without knowing it, a GPU that holds both is found as well"
        assert known == f"GPU-{chosen}" or f"GPU-{chosen}" not in holding
    else:
        assert known == unknown


def whole(half: Half, chosen: Sequence[str], *free: tuple[int, int]) -> tuple[str, ...]:
    count = 200 if half is Half.CORE else 2 * UNITS

    def first(uuids: Sequence[str], wanted: int, required: Sequence[str]) -> Sequence[str]:
        return uuids[:wanted]

    return placement.whole_gpus(rooms(half, *free), half, count, (), first, "it", chosen)


@both_halves
def test_chosen_whole_gpus_are_taken_where_all_of_them_are_free(half: Half) -> None:
    free = [(100, UNITS)] * 3 + [(90, 70)]

    assert whole(half, ("GPU-2", "GPU-1"), *free) == ("GPU-2", "GPU-1")
    for others in (("GPU-2", "GPU-3"), ("GPU-2",), ("GPU-2", "GPU-2"), ("GPU-9", "GPU-1"), ()):
        assert whole(half, others, *free) == ("GPU-0", "GPU-1")
    assert whole(half, ("GPU-0", "GPU-1", "GPU-2"), *free) == ("GPU-0", "GPU-1")
