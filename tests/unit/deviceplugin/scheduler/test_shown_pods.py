"""Which pods an inventory shows."""

import pytest

from deviceplugin.model.pod_requests import ContainerKind
from deviceplugin.model.published import PublishedNode, PublishedResource, PublishedSlice
from deviceplugin.scheduler.cluster.shown_pods import (
    NOTHING_LEFT,
    LeftOver,
    held_by,
    is_shown,
    left_by_pod,
    shown_pods,
    still_left,
)
from deviceplugin.scheduler.search.node_view import Reservation, Taken
from support.scheduler.values import DOMAIN, asking, held_slice, pod_of, published

PAIR = {"vgpu-core": 30, "vgpu-memory": 10}


def shows(node: PublishedNode, *containers: object, left: LeftOver = NOTHING_LEFT) -> bool:
    request = pod_of("p", containers=containers)  # type: ignore[arg-type]
    return is_shown(request, DOMAIN, shown_pods(node).get(("team", "p")), left)


@pytest.mark.parametrize(
    ("slices", "is_there"),
    [
        ([], False),
        ([held_slice("s", "p", 30, 10)], True),
        ([held_slice("s", "p", 40, 20)], True),
        ([held_slice("s", "p", 30, 0)], False),
        ([held_slice("s", "p", 0, 10)], False),
        ([held_slice("s", None, 30, 10)], False),
        ([held_slice("s", "q", 30, 10)], False),
        ([held_slice("s", "p", 30, 10, container="other")], False),
        ([held_slice("s", "p", 30, 0), held_slice("t", "p", 0, 10)], True),
    ],
)
def test_a_container_is_shown_with_all_that_it_asked_for(
    slices: list[PublishedSlice], is_there: bool
) -> None:
    assert shows(published(*slices), asking("main", PAIR)) is is_there


def test_every_container_must_be_there_but_plain_init_ones() -> None:
    a, b = asking("a", PAIR), asking("b", PAIR)
    init = asking("first", PAIR, ContainerKind.INIT)
    side = asking("side", PAIR, ContainerKind.SIDECAR)
    only_a = published(held_slice("s", "p", 30, 10, container="a"))

    assert shows(only_a, a)
    assert shows(only_a, init, a)
    assert not shows(only_a, a, b)
    assert not shows(only_a, side, a)
    assert not shows(only_a, init)


def test_a_lone_core_is_shown_by_a_slice_with_its_default() -> None:
    assert shows(published(held_slice("s", "p", 30, 24)), asking("main", {"vgpu-core": 30}))
    assert not shows(published(), asking("main", {"vgpu-core": 30}))


def test_devices_are_counted_under_the_name() -> None:
    mine, other, nobody = ("team", "p"), ("team", "q"), ("", "")
    resource = PublishedResource("nvidia.com/gpu", 8, 4, (mine, other, mine, nobody))
    node = published(resources=[resource])

    assert shows(node, asking("a", {"gpu": 1}), asking("b", {"gpu": 1}))
    assert not shows(node, asking("a", {"gpu": 3}))
    assert not shows(
        node, asking("a", {"gpu": 1}), left=LeftOver(frozenset(), {"nvidia.com/gpu": 2}, 0)
    )


def test_what_is_left_over_counts_for_nobody_until_it_goes() -> None:
    old = published(held_slice("s", "p", 30, 10))
    left = left_by_pod(shown_pods(old)["team", "p"], 5.0)
    main = asking("main", PAIR)

    assert not shows(old, main, left=left)
    both = published(held_slice("s", "p", 30, 10), held_slice("t", "p", 30, 10, 1))
    assert shows(both, main, left=left)
    index = shown_pods(both)
    assert held_by(index["team", "p"], left) == Reservation({"GPU-n1-1": Taken(30, 10, 1)})
    new = published(held_slice("t", "p", 30, 10, 1))
    assert still_left(left, index["team", "p"], index["team", "p"]) == left
    assert still_left(left, index["team", "p"], shown_pods(new)["team", "p"]) is None
    assert still_left(left, index["team", "p"], None) is None
    assert left_by_pod(None, 5.0) is NOTHING_LEFT


def test_devices_that_go_are_those_left_over() -> None:
    def node(count: int) -> PublishedNode:
        return published(
            resources=[PublishedResource("nvidia.com/gpu", 8, count, (("team", "p"),) * count)]
        )

    def index(count: int) -> object:
        return shown_pods(node(count)).get(("team", "p"))

    left = left_by_pod(index(2), 0.0)  # type: ignore[arg-type]
    assert still_left(left, index(2), index(4)) == left  # type: ignore[arg-type]
    after = still_left(left, index(4), index(3))  # type: ignore[arg-type]
    assert after is not None and after.devices == {"nvidia.com/gpu": 1}
    assert still_left(left, index(4), index(2)) is None  # type: ignore[arg-type]
    assert not shows(node(2), asking("a", {"gpu": 2}), left=left)
    assert shows(node(2), asking("a", {"gpu": 2}))
