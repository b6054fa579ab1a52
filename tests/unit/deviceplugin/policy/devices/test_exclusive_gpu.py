"""Which GPUs are under MPS, which are exclusive, and how many clients one takes."""

from dataclasses import replace

import pytest

from deviceplugin.model.allocations import Allocation, AllocationBook
from deviceplugin.model.concurrency import Concurrency
from deviceplugin.model.overrides import Override
from deviceplugin.model.units import Half, unit_name
from deviceplugin.policy.devices.exclusive_gpu import clients_most, is_exclusive, under_mps
from deviceplugin.policy.devices.layout import Layout
from deviceplugin.policy.limits.asked import asked_limits
from deviceplugin.policy.limits.resolver import resolve
from deviceplugin.policy.limits.rules import RaiseRoom, not_permitted
from deviceplugin.policy.pairing import pairing
from libvgpu.errors import AllocationRefused
from libvgpu.limits import ComputeMode, Family
from support.node.units import GIB, NOW, holding, layout_of, preferred

A, B = "GPU-0", "GPU-1"


def mps_layout(count: int = 2, major: int | None = None) -> Layout:
    return layout_of(*[80] * count, family=Family.MPS, major=major)


def held(name: str, *uuids: str, core: range = range(100), memory: range = range(8)) -> Allocation:
    return holding(name, core, memory, *uuids, family=Family.MPS, settled=True)


def test_all_core_units_of_its_gpus_are_whole_gpus_with_any_memory() -> None:
    assert is_exclusive(held("one", A))
    assert is_exclusive(held("two", A, B, memory=range(80)))
    assert not is_exclusive(held("most", A, core=range(99)))
    assert not is_exclusive(replace(held("vgpu", A), family=Family.VGPU))
    assert not is_exclusive(replace(held("memory", A), core=()))


def test_a_gpu_that_somebody_has_whole_is_not_under_mps_until_he_ends() -> None:
    book = AllocationBook.of([held("whole", A)])
    assert under_mps(mps_layout(), book, {}) == {B: False}

    book.drop("whole")
    book.put(held("part", B, core=range(30)))

    assert under_mps(mps_layout(), book, {}) == {A: False, B: True}


def test_of_a_pods_containers_the_one_that_was_let_start_last_decides() -> None:
    init, main = held("init", A, core=range(50)), held("main", A)
    book = AllocationBook.of([init, main])
    assert A in under_mps(mps_layout(), book, {})  # the init container is first

    assert A in under_mps(mps_layout(), book, {A: "init"})
    assert A not in under_mps(mps_layout(), book, {A: "main"})

    # and for an agent that was started since, what is on record
    assert A not in under_mps(
        mps_layout(), AllocationBook.of([init, replace(main, started=True)]), {}
    )


def test_a_gpu_keeps_the_sharing_of_the_slices_it_carries() -> None:
    moved = Layout("nvidia.com", mps_layout().gpus[1:])  # GPU A is not of family mps any more
    assert under_mps(moved, AllocationBook.of([held("old", A, core=range(5))]), {}) == {
        A: True,
        B: False,
    }

    other = replace(held("vgpu", A, core=range(5)), family=Family.VGPU)
    assert under_mps(mps_layout(), AllocationBook.of([other]), {}) == {B: False}


@pytest.mark.parametrize(("major", "most"), [(6, 16), (7, 48), (9, 48), (None, 48)])
def test_a_gpu_carries_as_many_slices_as_it_takes_clients(major: int | None, most: int) -> None:
    layout, book = mps_layout(1, major), AllocationBook()
    assert clients_most(layout.gpus[0].gpu) == most

    def ask() -> Allocation:
        offered = [u for u in (unit_name(A, Half.CORE, n) for n in range(100)) if book.is_free(u)]
        units = preferred(layout, book, Half.CORE, 1, offered)
        number = str(len(book.allocations))
        return pairing.allocate(layout, book, Family.MPS, Half.CORE, units, NOW, number)

    for _ in range(most):
        book.put(replace(ask(), settled=True))
    with pytest.raises(AllocationRefused, match=f"carries {most} slices already.*no more clients"):
        ask()
    free = [unit_name(A, Half.CORE, 99)]
    with pytest.raises(AllocationRefused, match=f"carries {most} slices already.*no more clients"):
        pairing.allocate(layout, book, Family.MPS, Half.CORE, free, NOW, "more")

    book.drop("3")
    ask()


def test_limits_of_an_exclusive_gpu_name_no_mps_and_keep_the_share() -> None:
    whole = held("whole", A)
    asked = asked_limits(whole, ComputeMode.STRICT)
    (device,) = asked.devices
    assert (device.mps_thread_percentage, device.mps_pinned_bytes) == (0, 0)
    assert device.mps_pipe_directory == ""
    assert device.memory_limit_bytes == 8 * GIB

    whole = replace(whole, override=Override(core_percent=30, memory_bytes=GIB))
    resolved = resolve(whole, asked, None, RaiseRoom(), {})
    (lowered,) = resolved.limits.devices

    assert (lowered.core_percent, lowered.memory_limit_bytes) == (100, GIB)
    assert (lowered.mps_pipe_directory, lowered.compute_mode) == ("", ComputeMode.OFF)
    (origins,) = resolved.origins
    assert [str(origin) for origin in (origins.core, origins.memory)] == ["request", "vgpuctl set"]
    said = not_permitted(asked, None, Override(core_percent=30), "it")
    assert said is not None
    assert "its GPU is exclusive, without MPS" in said
    assert not_permitted(asked, None, Override(memory_bytes=GIB), "it") is None


def of_vgpu(allocation: Allocation) -> Allocation:
    return replace(allocation, family=Family.VGPU, concurrency=Concurrency.MPS)


def vgpu_layout(count: int = 2) -> Layout:
    gpus = tuple(
        replace(shared, family=Family.VGPU, concurrency=Concurrency.MPS)
        for shared in mps_layout(count).gpus
    )
    return Layout("nvidia.com", gpus)


def test_in_family_vgpu_one_whole_gpu_has_mps_and_several_have_not() -> None:
    one, two = of_vgpu(held("one", A)), of_vgpu(held("two", A, B))
    assert not is_exclusive(one)
    assert is_exclusive(two)
    assert not is_exclusive(replace(two, concurrency=Concurrency.TIME_SLICES))

    assert under_mps(vgpu_layout(), AllocationBook.of([one]), {}) == {A: True, B: False}
    assert under_mps(vgpu_layout(), AllocationBook.of([two]), {}) == {}


def test_a_gpu_with_slices_by_time_is_not_under_mps_until_they_have_ended() -> None:
    old = replace(of_vgpu(held("old", A, core=range(5))), concurrency=Concurrency.TIME_SLICES)
    book = AllocationBook.of([old])
    assert under_mps(vgpu_layout(), book, {}) == {B: False}

    by_time = Layout(
        "nvidia.com",
        tuple(
            replace(shared, concurrency=Concurrency.TIME_SLICES) for shared in vgpu_layout().gpus
        ),
    )
    book = AllocationBook.of([of_vgpu(held("new", A, core=range(5)))])
    assert under_mps(by_time, book, {}) == {A: True}


def test_a_client_of_family_vgpu_has_its_share_and_memory_held_by_the_shim() -> None:
    client = of_vgpu(held("part", A, core=range(30)))
    asked = asked_limits(client, ComputeMode.ELASTIC)
    set_lower = replace(client, override=Override(core_percent=20, memory_bytes=GIB))

    (device,) = asked.devices
    (lowered,) = resolve(set_lower, asked, None, RaiseRoom(), {}).limits.devices
    (one,) = asked_limits(of_vgpu(held("one", A)), ComputeMode.STRICT).devices
    two = asked_limits(of_vgpu(held("two", A, B)), ComputeMode.STRICT).devices

    assert device.is_mps_client
    assert (device.core_percent, device.compute_mode) == (30, ComputeMode.ELASTIC)
    for each in (device, lowered):
        assert (each.mps_thread_percentage, each.mps_pinned_bytes) == (0, 0)
    assert lowered.is_mps_client
    assert (lowered.core_percent, lowered.memory_limit_bytes) == (20, GIB)
    assert one.is_mps_client
    assert not any(each.is_mps_client for each in two)
