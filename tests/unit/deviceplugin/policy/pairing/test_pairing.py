"""Placement and pairing as pure policy: random histories, and the cases worth a name."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deviceplugin.model.allocations import Allocation, AllocationBook, Owner
from deviceplugin.model.units import Half, gpu_of, unit_name
from deviceplugin.policy.devices import offer
from deviceplugin.policy.devices.layout import Layout
from deviceplugin.policy.pairing import implicit_units, pairing
from libvgpu.errors import AllocationRefused
from libvgpu.limits import Family
from support.node.units import GIB, NOW, free_units, layout_of, names, preferred

MEMORY_UNITS = 16
STEP_S = 0.01
VGPU = Family.VGPU
OWNER = Owner("team", "pod", "main")


class PureAdmission:
    """Admits containers as the kubelet does, against the pure policy alone."""

    def __init__(self, layout: Layout) -> None:
        self.layout, self.book, self.now, self.made = layout, AllocationBook(), NOW, 0

    def half(self, half: Half, count: int) -> Allocation:
        self.now += STEP_S
        chosen = preferred(self.layout, self.book, half, count, now_s=self.now)
        assert len(chosen) == count == len(set(chosen))
        return self.allocate(half, chosen)

    def allocate(self, half: Half, units: Sequence[str]) -> Allocation:
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
    admission = PureAdmission(layout_of(*[MEMORY_UNITS] * gpu_count))
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
    admission = PureAdmission(layout_of(16, 16))
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


def test_a_split_pair_is_refused_with_both_gpus() -> None:
    admission = PureAdmission(layout_of(16, 16))
    admission.allocate(Half.CORE, names("GPU-0", Half.CORE, range(30)))

    with pytest.raises(AllocationRefused, match=r"on GPU GPU-1, but 30 core .* on GPU GPU-0"):
        admission.allocate(Half.MEMORY, names("GPU-1", Half.MEMORY, range(4)))


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
        PureAdmission(layout_of(16, 16)).allocate(half, units)


def test_a_held_unit_is_refused_with_its_holder() -> None:
    admission = PureAdmission(layout_of(16))
    held = admission.allocate(Half.CORE, ["GPU-0::c1"])
    admission.book.put(replace(held, owner=OWNER))

    with pytest.raises(
        AllocationRefused, match=r"unit GPU-0::c1 is held by team/pod/main \(allocation id1"
    ):
        admission.allocate(Half.CORE, ["GPU-0::c1", "GPU-0::c2"])


def test_memory_alone_is_refused_by_mps_and_reserves_nothing_else() -> None:
    memory = (unit_name("GPU-0", Half.MEMORY, 1),)
    lone = Allocation("id", Family.MPS, "GPU-0", GIB, memory=memory)

    with pytest.raises(AllocationRefused, match="MPS reserves no left-over compute"):
        implicit_units.complete_start(layout_of(16, family=Family.MPS), AllocationBook(), lone)

    done = implicit_units.complete_start(
        layout_of(16), AllocationBook(), replace(lone, family=VGPU)
    )
    assert (done.settled, done.implicit_units) == (True, ())


def test_memory_that_came_back_a_moment_ago_is_not_counted_on_yet() -> None:
    layout = layout_of(16, 16)
    all_core = [u for u, _ in offer.advertised(layout, VGPU, Half.CORE)]
    back = frozenset(names("GPU-0", Half.MEMORY, range(16)))

    def gpu(available: Sequence[str], returned: frozenset[str]) -> str:
        book = AllocationBook()
        return gpu_of(preferred(layout, book, Half.CORE, 90, available, returned=returned)[0])

    assert gpu(all_core, frozenset()) == "GPU-0"
    assert gpu(all_core, back) == "GPU-1"
    on_first = [unit for unit in all_core if gpu_of(unit) == "GPU-0"]
    assert gpu(on_first, back) == "GPU-0", "there is no other"


def test_what_the_kubelet_offers_it_knows_to_be_back() -> None:
    layout = layout_of(16)
    memory = names("GPU-0", Half.MEMORY, range(16))

    back = frozenset(memory)
    chosen = preferred(layout, AllocationBook(), Half.MEMORY, 16, memory, returned=back)

    assert sorted(chosen) == sorted(memory)


@pytest.mark.parametrize("first", list(Half))
def test_whole_gpus_keep_their_order_when_the_second_half_comes_in_another(first: Half) -> None:
    admission = PureAdmission(layout_of(16, 16, 16))
    order = {first: (2, 0, 1), first.other: (1, 2, 0)}
    counts = {Half.CORE: 100, Half.MEMORY: MEMORY_UNITS}

    for half in (first, first.other):
        units = [u for i in order[half] for u in names(f"GPU-{i}", half, range(counts[half]))]
        allocation = admission.allocate(half, units)
        assert allocation.uuids == ("GPU-2", "GPU-0", "GPU-1")
