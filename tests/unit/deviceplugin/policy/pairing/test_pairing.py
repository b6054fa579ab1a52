"""Placement and pairing as pure policy: random histories, and the cases worth a name."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deviceplugin.inventory.nvml import Gpu
from deviceplugin.model.allocations import Allocation, AllocationBook, Owner
from deviceplugin.model.units import Half, gpu_of, unit_name
from deviceplugin.policy.devices import offer
from deviceplugin.policy.devices.draining import in_force
from deviceplugin.policy.devices.layout import Layout, SharedGpu
from deviceplugin.policy.pairing import implicit_units, pairing
from deviceplugin.policy.pairing.preference import UnitRequest, prefer
from libvgpu.errors import AllocationRefused
from libvgpu.limits import ComputeMode, Family

GIB = 1 << 30
MEMORY_UNITS = 16
NOW = 1000.0
STEP_S = 0.01
VGPU = Family.VGPU
OWNER = Owner("team", "pod", "main")


def layout_of(count: int, family: Family = VGPU) -> Layout:
    gpus = tuple(
        SharedGpu(Gpu(i, f"GPU-{i}", "test", MEMORY_UNITS * GIB), family, GIB, ComputeMode.STRICT)
        for i in range(count)
    )
    return Layout("nvidia.com", gpus)


def names(uuid: str, half: Half, numbers: range) -> list[str]:
    return [unit_name(uuid, half, n) for n in numbers]


def free_units(
    layout: Layout, book: AllocationBook, half: Half, family: Family = VGPU
) -> list[str]:
    """What a kubelet that knows what the book knows would offer."""
    gone = offer.withdrawn(layout, book)
    return [
        unit
        for unit, _ in offer.advertised(layout, family, half)
        if book.holder(unit) is None and unit not in gone
    ]


class PureAdmission:
    """Admits containers as the kubelet does, against the pure policy alone."""

    def __init__(self, layout: Layout) -> None:
        self.layout, self.book, self.now, self.made = layout, AllocationBook(), NOW, 0

    def half(self, half: Half, count: int) -> Allocation:
        self.now += STEP_S
        chosen = prefer(
            self.layout,
            self.book,
            UnitRequest(VGPU, half, free_units(self.layout, self.book, half), (), count),
            self.now,
        )
        assert len(chosen) == count == len(set(chosen))
        return self.allocate(half, chosen)

    def allocate(self, half: Half, units: list[str]) -> Allocation:
        self.made += 1
        for settled in pairing.settle_before(self.book, VGPU, half):
            self.book.put(settled)
        allocation = pairing.allocate(
            self.layout, self.book, VGPU, half, units, self.now, f"id{self.made}"
        )
        self.book.put(allocation)
        return allocation

    def pair(self, core: int, memory: int, core_first: bool) -> Allocation:
        order = [(Half.CORE, core), (Half.MEMORY, memory)]
        (first, amount), (second, other) = order if core_first else order[::-1]
        opened = self.half(first, amount)
        try:
            return self.half(second, other)
        except AllocationRefused:
            self.book.drop(opened.allocation_id)  # the pod failed; the kubelet takes it back
            raise


PAIRS = st.tuples(st.integers(1, 100), st.integers(1, MEMORY_UNITS), st.booleans())
STEPS = st.lists(st.one_of(PAIRS, st.integers(0, 30)), max_size=25)


@settings(max_examples=150)
@given(gpu_count=st.integers(1, 4), steps=STEPS)
def test_pairs_share_a_gpu_and_no_unit_has_two_holders(
    gpu_count: int, steps: list[tuple[int, int, bool] | int]
) -> None:
    admission = PureAdmission(layout_of(gpu_count))
    for step in steps:
        if isinstance(step, int):
            living = list(admission.book.allocations)
            if living:
                admission.book.drop(living[step % len(living)])
            continue
        core, memory, core_first = step
        fits = any(
            len([u for u in free_units(admission.layout, admission.book, Half.CORE)
                 if gpu_of(u) == g.gpu.uuid]) >= core
            and len([u for u in free_units(admission.layout, admission.book, Half.MEMORY)
                     if gpu_of(u) == g.gpu.uuid]) >= memory
            for g in admission.layout.gpus
        )  # fmt: skip
        before = set(admission.book.allocations)
        try:
            allocation = admission.pair(core, memory, core_first)
        except AllocationRefused:
            assert not fits, "a pair that one GPU can hold was refused"
            assert set(admission.book.allocations) == before
            continue
        assert (len(allocation.core), len(allocation.memory)) == (core, memory)
        assert {gpu_of(u) for u in (*allocation.core, *allocation.memory)} == {allocation.uuid}
        assert allocation.settled
        held = [u for h in admission.book.allocations.values() for u in (*h.core, *h.memory)]
        assert len(held) == len(set(held)), "a unit has two holders"


@settings(max_examples=150)
@given(
    calls=st.lists(
        st.tuples(
            st.sampled_from(Half),
            st.integers(0, 1),
            st.integers(0, 12),
            st.integers(1, 4),
            st.sampled_from([0.0, 0.1, pairing.JOIN_WINDOW_S + 1]),
        ),
        max_size=30,
    )
)
def test_whatever_a_kubelet_gives_nothing_is_split_or_given_twice(
    calls: list[tuple[Half, int, int, int, float]],
) -> None:
    admission = PureAdmission(layout_of(2))
    for half, gpu, first, count, pause_s in calls:
        admission.now += pause_s
        for shown in list(admission.book.allocations.values()):
            admission.book.put(replace(shown, owner=OWNER))  # as podresources lists it
        units = names(f"GPU-{gpu}", half, range(first, first + count))
        taken = [u for u in units if admission.book.holder(u) is not None]
        try:
            allocation = admission.allocate(half, units)
        except AllocationRefused:
            continue
        assert not taken, "a held unit was given again"
        assert {gpu_of(u) for u in (*allocation.core, *allocation.memory)} == {allocation.uuid}


def test_the_second_half_is_steered_to_the_first() -> None:
    admission = PureAdmission(layout_of(3))
    first = admission.allocate(Half.CORE, names("GPU-2", Half.CORE, range(30)))

    chosen = prefer(
        admission.layout,
        admission.book,
        UnitRequest(
            VGPU, Half.MEMORY, free_units(admission.layout, admission.book, Half.MEMORY), (), 4
        ),
        admission.now,
    )

    assert {gpu_of(u) for u in chosen} == {first.uuid}


def test_a_split_pair_is_refused_with_both_gpus() -> None:
    admission = PureAdmission(layout_of(2))
    admission.allocate(Half.CORE, names("GPU-0", Half.CORE, range(30)))

    with pytest.raises(AllocationRefused, match=r"on GPU GPU-1, but 30 core .* on GPU GPU-0"):
        admission.allocate(Half.MEMORY, names("GPU-1", Half.MEMORY, range(4)))


def test_a_late_half_belongs_to_another_container() -> None:
    admission = PureAdmission(layout_of(1))
    lone = admission.allocate(Half.CORE, names("GPU-0", Half.CORE, range(30)))
    admission.now += pairing.JOIN_WINDOW_S + 1

    other = admission.allocate(Half.MEMORY, names("GPU-0", Half.MEMORY, range(4)))

    assert other.allocation_id != lone.allocation_id


def test_the_same_half_again_belongs_to_another_container() -> None:
    admission = PureAdmission(layout_of(1))
    first = admission.allocate(Half.CORE, names("GPU-0", Half.CORE, range(10)))
    second = admission.allocate(Half.CORE, names("GPU-0", Half.CORE, range(10, 20)))

    third = admission.allocate(Half.MEMORY, names("GPU-0", Half.MEMORY, range(2)))

    assert third.allocation_id == second.allocation_id != first.allocation_id


@pytest.mark.parametrize(
    ("half", "units", "said"),
    [
        (Half.CORE, [], "names no unit"),
        (Half.CORE, ["GPU-0::m1"], "is not a unit of core"),
        (Half.CORE, ["GPU-0::c1", "GPU-0::c1"], "names a unit twice"),
        (Half.CORE, ["GPU-0::c1", "GPU-1::c1"], "spread over the GPUs GPU-0, GPU-1.* all 100"),
        (Half.CORE, ["GPU-9::c1"], "not offered: GPU-9::c1"),
        (Half.CORE, ["GPU-0::c100"], "not offered: GPU-0::c100"),
        (Half.MEMORY, ["GPU-0::m16"], "not offered: GPU-0::m16"),
        (Half.MEMORY, ["GPU-0::m01"], "is not a unit of memory"),
        (Half.MEMORY, ["x" * 5000], "is not a unit of memory"),
    ],
)
def test_units_that_cannot_be_are_refused(half: Half, units: list[str], said: str) -> None:
    with pytest.raises(AllocationRefused, match=said):
        PureAdmission(layout_of(2)).allocate(half, units)


def test_a_held_unit_is_refused_with_its_holder() -> None:
    admission = PureAdmission(layout_of(1))
    held = admission.allocate(Half.CORE, ["GPU-0::c1"])
    admission.book.put(replace(held, owner=OWNER))

    with pytest.raises(
        AllocationRefused, match=r"unit GPU-0::c1 is held by team/pod/main \(allocation id1"
    ):
        admission.allocate(Half.CORE, ["GPU-0::c1", "GPU-0::c2"])


def test_a_preference_keeps_what_the_container_has_already() -> None:
    admission = PureAdmission(layout_of(3))
    required = names("GPU-1", Half.CORE, range(40, 45))

    chosen = prefer(
        admission.layout,
        admission.book,
        UnitRequest(
            VGPU, Half.CORE, free_units(admission.layout, admission.book, Half.CORE), required, 20
        ),
        NOW,
    )

    assert set(required) <= set(chosen)
    assert len(set(chosen)) == 20
    assert {gpu_of(u) for u in chosen} == {"GPU-1"}


def test_among_equal_gpus_the_fullest_that_fits_is_taken() -> None:
    admission = PureAdmission(layout_of(2))
    core = names("GPU-1", Half.CORE, range(50))
    admission.book.put(Allocation("old", VGPU, "GPU-1", GIB, core=tuple(core), settled=True))

    assert admission.half(Half.CORE, 50).uuid == "GPU-1"


def test_core_alone_borrows_its_share_of_memory_and_gives_it_back() -> None:
    admission = PureAdmission(layout_of(1))
    lone = admission.half(Half.CORE, 25)

    done = implicit_units.complete_start(admission.layout, admission.book, lone)
    admission.book.put(done)

    assert done.memory_bytes == 4 * GIB
    assert offer.withdrawn(admission.layout, admission.book) == set(done.implicit_units)
    admission.book.drop(done.allocation_id)
    assert offer.withdrawn(admission.layout, admission.book) == set()


def test_core_alone_without_free_memory_is_refused_with_the_numbers() -> None:
    admission = PureAdmission(layout_of(1))
    admission.pair(10, 14, core_first=True)
    lone = admission.half(Half.CORE, 50)

    with pytest.raises(AllocationRefused, match="8 units of 1 GiB, but 2 are free on GPU GPU-0"):
        implicit_units.complete_start(admission.layout, admission.book, lone)


def test_memory_alone_is_refused_by_mps_and_reserves_nothing_else() -> None:
    memory = (unit_name("GPU-0", Half.MEMORY, 1),)
    lone = Allocation("id", Family.MPS, "GPU-0", GIB, memory=memory)

    with pytest.raises(AllocationRefused, match="MPS reserves no left-over compute"):
        implicit_units.complete_start(layout_of(1, Family.MPS), AllocationBook(), lone)

    done = implicit_units.complete_start(layout_of(1), AllocationBook(), replace(lone, family=VGPU))
    assert (done.settled, done.implicit_units) == (True, ())


def test_a_gpu_that_changed_family_is_withdrawn_until_its_slices_end() -> None:
    book = AllocationBook()
    held = Allocation("id", Family.MPS, "GPU-0", GIB, core=("GPU-0::c0",), settled=True)
    book.put(held)
    wanted = layout_of(2)
    gpus = [shared.gpu for shared in wanted.gpus]
    layout = in_force(wanted, gpus, book)

    gone = offer.withdrawn(layout, book)

    assert "GPU-0::c1" in gone
    assert "GPU-0::c0" not in gone, "a held unit must never be withdrawn"
    assert not [u for u in gone if gpu_of(u) == "GPU-1"]
    with pytest.raises(AllocationRefused, match="still carries slices"):
        pairing.allocate(layout, book, Family.MPS, Half.CORE, ["GPU-0::c5"], NOW, "new")
    with pytest.raises(AllocationRefused, match="not offered"):
        pairing.allocate(layout, book, VGPU, Half.CORE, ["GPU-0::c5"], NOW, "new")
    book.drop("id")
    assert offer.withdrawn(in_force(wanted, gpus, book), book) == set()


def test_memory_that_came_back_a_moment_ago_is_not_counted_on_yet() -> None:
    layout = layout_of(2)
    all_core = [u for u, _ in offer.advertised(layout, VGPU, Half.CORE)]
    back = frozenset(names("GPU-0", Half.MEMORY, range(16)))

    def gpu(available: list[str], returned: frozenset[str]) -> str:
        chosen = prefer(
            layout,
            AllocationBook(),
            UnitRequest(VGPU, Half.CORE, available, (), 90, returned=returned),
            NOW,
        )
        return gpu_of(chosen[0])

    assert gpu(all_core, frozenset()) == "GPU-0"
    assert gpu(all_core, back) == "GPU-1"
    on_first = [unit for unit in all_core if gpu_of(unit) == "GPU-0"]
    assert gpu(on_first, back) == "GPU-0", "there is no other"


def test_what_the_kubelet_offers_it_knows_to_be_back() -> None:
    layout = layout_of(1)
    memory = names("GPU-0", Half.MEMORY, range(16))

    chosen = prefer(
        layout,
        AllocationBook(),
        UnitRequest(VGPU, Half.MEMORY, memory, (), 16, returned=frozenset(memory)),
        NOW,
    )

    assert sorted(chosen) == sorted(memory)


@pytest.mark.parametrize("first", list(Half))
def test_whole_gpus_keep_their_order_when_the_second_half_comes_in_another(first: Half) -> None:
    admission = PureAdmission(layout_of(3))
    order = {first: (2, 0, 1), first.other: (1, 2, 0)}
    counts = {Half.CORE: 100, Half.MEMORY: MEMORY_UNITS}

    for half in (first, first.other):
        units = [u for i in order[half] for u in names(f"GPU-{i}", half, range(counts[half]))]
        allocation = admission.allocate(half, units)
        assert allocation.uuids == ("GPU-2", "GPU-0", "GPU-1")
