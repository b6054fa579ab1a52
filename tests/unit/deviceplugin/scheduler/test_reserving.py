"""What a pod takes of a node before its agent shows it."""

from dataclasses import replace

import pytest

from deviceplugin.model.chosen_gpus import ChosenGpus
from deviceplugin.model.pod_requests import ContainerKind
from deviceplugin.model.published import PublishedResource
from deviceplugin.scheduler.cluster.reserving import (
    chosen_reservation,
    everywhere,
    has_room,
    is_possible,
)
from deviceplugin.scheduler.search.node_view import Reservation, Taken, view_of
from support.scheduler.values import asking, gpu, held_slice, pod_of, published

G0, G1 = "GPU-n1-0", "GPU-n1-1"
INIT, SIDECAR = ContainerKind.INIT, ContainerKind.SIDECAR


def chosen(**containers: tuple[str, ...]) -> ChosenGpus:
    return ChosenGpus("n1", containers)


@pytest.mark.parametrize(
    ("amounts", "uuids", "taken"),
    [
        ({"vgpu-core": 30, "vgpu-memory": 10}, (G0,), {G0: Taken(30, 10, 1)}),
        ({"vgpu-core": 50}, (G1,), {G1: Taken(50, 40, 1)}),
        ({"vgpu-core": 1}, (G1,), {G1: Taken(1, 1, 1)}),
        ({"vgpu-memory": 10}, (G1,), {G1: Taken(0, 10, 1)}),
        ({"vgpu-core": 200}, (G0, G1), {G0: Taken(100, 80, 1), G1: Taken(100, 80, 1)}),
        (
            {"vgpu-core": 200, "vgpu-memory": 160},
            (G0, G1),
            {G0: Taken(100, 80, 1), G1: Taken(100, 80, 1)},
        ),
        ({"vgpu-memory": 160}, (G0, G1), {G0: Taken(0, 80, 1), G1: Taken(0, 80, 1)}),
    ],
)
def test_chosen_gpus_are_taken_with_what_comes_by_default(
    amounts: dict[str, int], uuids: tuple[str, ...], taken: dict[str, Taken]
) -> None:
    request = pod_of("p", containers=[asking("main", amounts)], chosen=chosen(main=uuids))

    assert chosen_reservation(published(), request) == Reservation(taken)


@pytest.mark.parametrize(
    ("amounts", "choice"),
    [
        ({"vgpu-core": 30}, None),
        ({"vgpu-core": 30}, chosen(other=(G0,))),
        ({"vgpu-core": 30}, chosen(main=())),
        ({"vgpu-core": 30}, chosen(main=("GPU-n2-0",))),
        ({"vgpu-core": 30}, chosen(main=(G0, G1))),
        ({"vgpu-core": 200}, chosen(main=(G0,))),
        ({"vgpu-core": 10, "vgpu-memory": 81}, chosen(main=(G0,))),
        ({"mps-core": 30}, chosen(main=(G0,))),
    ],
)
def test_a_choice_that_cannot_be_meant_is_none(
    amounts: dict[str, int], choice: ChosenGpus | None
) -> None:
    request = pod_of("p", containers=[asking("main", amounts)], chosen=choice)

    assert chosen_reservation(published(), request) is None


def test_what_a_plain_init_container_had_serves_later_containers_once() -> None:
    containers = [
        asking("first", {"vgpu-core": 50, "vgpu-memory": 10}, INIT),
        asking("second", {"vgpu-core": 60, "vgpu-memory": 10}, INIT),
        asking("side", {"vgpu-core": 40, "vgpu-memory": 4}, SIDECAR),
        asking("main", {"vgpu-core": 30, "vgpu-memory": 9, "gpu": 1}),
    ]
    names = [each.name for each in containers]
    request = pod_of("p", containers=containers, chosen=chosen(**dict.fromkeys(names, (G0,))))

    # 50, 10 more for the second; the sidecar takes 40 of these 60, 20 are left for the last.
    assert chosen_reservation(published(), request) == Reservation(
        {G0: Taken(50 + 10 + 0 + 10, 10 + 0 + 0 + 3, 4)}, {"nvidia.com/gpu": 1}
    )


@pytest.mark.parametrize("memory", [0, 40])
def test_memory_that_came_by_default_serves_nobody_later(memory: int) -> None:
    amounts = {"vgpu-core": 50} | ({"vgpu-memory": memory} if memory else {})
    containers = [asking("first", {"vgpu-core": 50}, INIT), asking("main", amounts)]
    request = pod_of("p", containers=containers, chosen=chosen(first=(G0,), main=(G0,)))

    assert chosen_reservation(published(), request) == Reservation({G0: Taken(50, 80, 2)})


def test_devices_of_a_plain_init_container_are_used_again() -> None:
    containers = [
        asking("first", {"gpu": 3}, INIT),
        asking("a", {"gpu": 2}),
        asking("b", {"gpu": 2}),
    ]

    assert everywhere(published(), pod_of("p", containers=containers)).devices == {
        "nvidia.com/gpu": 4
    }


def test_a_pod_of_which_nothing_is_known_takes_all_gpus_that_could_hold_some_of_it() -> None:
    node = published(gpus=[gpu(0), gpu(1, units=40), gpu(2, family="mps")])
    request = pod_of(
        "p",
        containers=[
            asking("a", {"vgpu-core": 30, "vgpu-memory": 30}),
            asking("b", {"vgpu-core": 50}),
        ],
    )

    assert everywhere(node, request).gpus == {G0: Taken(80, 70, 2), G1: Taken(80, 40, 2)}
    whole = pod_of("p", core=200)
    assert everywhere(node, whole).gpus == {G0: Taken(100, 80, 1), G1: Taken(100, 40, 1)}


def test_room_is_on_healthy_gpus_and_of_all_that_is_taken() -> None:
    resources = [PublishedResource("nvidia.com/gpu", 2, 1)]
    view = view_of("n1", published(held_slice("s", "p", 60, 20), resources=resources))

    assert has_room(view, Reservation({G0: Taken(40, 60, 1)}, {"nvidia.com/gpu": 1}))
    assert not has_room(view, Reservation({G0: Taken(41, 1, 1)}))
    assert not has_room(view, Reservation({G0: Taken(1, 61, 1)}))
    assert not has_room(view, Reservation({"GPU-n1-9": Taken(1, 1, 1)}))
    assert not has_room(view, Reservation({}, {"nvidia.com/gpu": 2}))
    assert not has_room(view, Reservation({}, {"nvidia.com/other": 1}))
    sick = view_of("n1", published(gpus=[gpu(0, unhealthy="XID 79")]))
    assert not has_room(sick, Reservation({G0: Taken(1, 1, 1)}))
    full = replace(view, gpus=(replace(view.gpus[0], containers_left=0),))
    assert not has_room(full, Reservation({G0: Taken(1, 1, 1)}))


def test_a_reservation_of_a_gpu_that_is_not_given_any_more_is_impossible() -> None:
    reservation = Reservation({G0: Taken(1, 1, 1)})

    assert is_possible(published(), reservation)
    assert not is_possible(published(count=0), reservation)
    assert not is_possible(published(gpus=[gpu(0, unhealthy="XID 79")]), reservation)
