"""Victims are few, of lower priority, and enough."""

import random
from collections.abc import Set
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from deviceplugin.model.pod_requests import ContainerRequest, PodRequest
from deviceplugin.scheduler.search.fit import Plan, plan
from deviceplugin.scheduler.search.node_view import (
    DeviceRoom,
    GpuRoom,
    NodeView,
    Reservation,
    Taken,
)
from deviceplugin.scheduler.search.preemption import Holder, freed, victims
from deviceplugin.scheduler.search.wishes import NO_WISHES
from libvgpu.limits import Family

GIB = 1 << 30


def pod(core: int, memory: int, priority: int = 10, count: int = 1) -> PodRequest:
    amounts = {"nvidia.com/vgpu-core": core, "nvidia.com/vgpu-memory": memory}
    containers = tuple(ContainerRequest(f"c{n}", amounts) for n in range(count))
    return PodRequest("u", "ns", "p", containers, priority=priority)


def holder(
    uid: str, core: int, memory: int, priority: int = 0, gpu: int = 0, created_at: float = 0.0
) -> Holder:
    reservation = Reservation({f"GPU-{gpu}": Taken(core, memory, 1)})
    return Holder(uid, priority, created_at, reservation)


def view_of(holders: list[Holder], gpus: int = 2) -> NodeView:
    """A node with these pods and no others."""
    rooms = []
    for n in range(gpus):
        taken = [t for h in holders for u, t in h.reservation.gpus.items() if u == f"GPU-{n}"]
        rooms.append(
            GpuRoom(
                n, f"GPU-{n}", "p", Family.VGPU, 100 - sum(t.core for t in taken),
                16 - sum(t.memory for t in taken), 16, GIB, is_empty=not taken,
            )
        )  # fmt: skip
    return NodeView("n", "nvidia.com", tuple(rooms), {})


def found(
    asks: PodRequest, holders: list[Holder], given: tuple[str, ...] = ()
) -> tuple[str, ...] | None:
    def without(gone: Set[str]) -> NodeView:
        return view_of([h for h in holders if h.uid not in gone])

    return victims(without, asks, NO_WISHES, holders, given)


def test_only_those_go_whose_gpu_then_fits() -> None:
    """By sums the scheduler would end one on each GPU."""
    holders = [
        holder("a", 30, 4, gpu=0),
        holder("b", 60, 8, priority=20, gpu=0),
        holder("c", 30, 4, gpu=1),
        holder("d", 40, 4, gpu=1),
    ]
    assert found(pod(60, 8), holders, ("a", "c")) == ("c",)
    assert set(found(pod(80, 8), holders, ("a", "c")) or ()) == {"c", "d"}


def test_the_lowest_then_the_fewest_then_the_youngest() -> None:
    low = [holder("low", 60, 4, 1, gpu=0), holder("high", 60, 4, 5, gpu=1)]
    assert found(pod(50, 4), low) == ("low",)
    few = [holder("a", 40, 4, gpu=0), holder("b", 40, 4, gpu=0), holder("c", 80, 8, gpu=1)]
    assert found(pod(90, 4), few) == ("c",)
    young = [holder(name, 60, 4, gpu=n, created_at=n) for n, name in enumerate(("old", "new"))]
    assert found(pod(50, 4), young) == ("new",)


def test_who_holds_nothing_here_is_named_again() -> None:
    idle = Holder("idle", 0, 0.0, Reservation())
    holders = [holder("a", 60, 4, gpu=0), holder("b", 60, 4, priority=20, gpu=1), idle]
    assert found(pod(50, 4), holders, ("idle", "cpu", "a")) == ("idle", "cpu", "a")
    # It fits already: whatever they end for, it is no slice.
    assert found(pod(10, 1), holders, ("cpu", "a")) == ("cpu",)
    assert found(pod(10, 1), holders) == ()


@settings(max_examples=200)
@given(st.integers(0, 10**6))
def test_it_is_enough_and_nobody_of_them_could_stay(seed: int) -> None:
    chance = random.Random(seed)
    holders: list[Holder] = []
    for n in range(chance.randint(0, 8)):
        each = holder(
            f"h{n}",
            chance.choice((10, 30, 50)),
            chance.choice((1, 4, 8)),
            chance.randint(0, 12),
            chance.randint(0, 1),
            float(n),
        )
        rooms = view_of([*holders, each]).gpus
        if all(room.core >= 0 and room.memory >= 0 for room in rooms):
            holders.append(each)
    asks = pod(chance.choice((20, 50, 90)), chance.choice((2, 8, 12)), count=chance.randint(1, 2))

    def fits(gone: Set[str]) -> bool:
        view = freed(view_of(holders), holders, gone)
        exact = view_of([h for h in holders if h.uid not in gone])
        assert view == exact
        return isinstance(plan(view, asks, NO_WISHES), Plan)

    lower = {h.uid for h in holders if h.priority < asks.priority}
    going = found(asks, holders)
    if going is None:
        assert not fits(lower)
        return
    assert set(going) <= lower
    assert fits(frozenset(going))
    for fewer in combinations(going, max(0, len(going) - 1)):
        assert not going or not fits(frozenset(fewer))


def test_devices_are_freed_too() -> None:
    taken = Holder("a", 0, 0.0, Reservation({}, {"nvidia.com/gpu": 2}))
    view = NodeView("n", "nvidia.com", (), {"nvidia.com/gpu": DeviceRoom(0, 2)})
    asks = PodRequest("u", "ns", "p", (ContainerRequest("c", {"nvidia.com/gpu": 1}),), priority=1)

    def without(gone: Set[str]) -> NodeView:
        return freed(view, [taken], gone)

    assert victims(without, asks, NO_WISHES, [taken], ()) == ("a",)
