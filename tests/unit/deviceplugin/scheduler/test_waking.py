"""kube-scheduler tries a refused pod again once it fits, and for nothing else."""

import pytest

from deviceplugin.kube.api_client import ApiUnreachable
from deviceplugin.model.pod_requests import PodRequest
from deviceplugin.scheduler.binding.waking import KEPT_S, MOST_REFUSED, Waker
from deviceplugin.scheduler.search.node_view import NodeView, Reservation
from deviceplugin.scheduler.search.plans import Plan, Refusal
from libvgpu.errors import UsageError


class World:
    """A clock, what fits where, and how often kube-scheduler was woken."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.fits: set[tuple[str, str]] = set()
        self.woken = 0
        self.failure: Exception | None = None
        self.waker = Waker(self.view, self.plan, self.wake, lambda: self.now_s)

    def view(self, node: str) -> tuple[int, NodeView] | None:
        return None if node == "gone" else (1, NodeView(node, "nvidia.com", (), {}))

    def plan(self, view: NodeView, request: PodRequest) -> Plan | Refusal:
        if request.uid == "odd":
            raise UsageError("it asks for what cannot be")
        if (request.uid, view.name) in self.fits:
            return Plan({}, Reservation())
        return Refusal("no room", True)

    def wake(self) -> None:
        if self.failure is not None:
            raise self.failure
        self.woken += 1


def pod(uid: str = "a") -> PodRequest:
    return PodRequest(uid, "team", uid, ())


@pytest.fixture
def world() -> World:
    return World()


def test_it_wakes_once_a_node_that_changed_has_room(world: World) -> None:
    world.waker.refused(pod())
    assert not world.waker.look()
    world.now_s += 5
    world.waker.changed("n1")
    assert not world.waker.look()  # still none
    world.fits.add(("a", "n1"))
    world.now_s += 5
    assert not world.waker.look()  # nothing has changed since
    world.waker.changed("n1")
    assert world.waker.look()
    assert not world.waker.look()  # that pod is on its way
    assert world.woken == 1


def test_a_node_that_changed_while_the_pod_was_judged_counts(world: World) -> None:
    world.fits.add(("a", "n1"))
    world.waker.changed("n1")
    world.now_s += 1
    world.waker.refused(pod())
    assert world.waker.look()


def test_what_changed_long_before_does_not(world: World) -> None:
    world.fits.add(("a", "n1"))
    world.waker.changed("n1")
    world.now_s += 5
    world.waker.refused(pod())
    assert not world.waker.look()


def test_it_wakes_no_more_than_once_a_second(world: World) -> None:
    for uid in "abc":
        world.fits.add((uid, "n1"))
        world.waker.refused(pod(uid))
        world.waker.changed("n1")
        world.waker.look()
        world.now_s += 0.1
    assert world.woken == 1
    world.now_s += 1
    assert world.waker.look()
    assert world.woken == 2


def test_a_pod_is_forgotten_after_a_while(world: World) -> None:
    world.waker.refused(pod())
    world.fits.add(("a", "n1"))
    world.now_s += KEPT_S
    world.waker.changed("n1")
    assert not world.waker.look()


def test_what_is_kept_is_bounded(world: World) -> None:
    for number in range(3 * MOST_REFUSED):
        world.waker.refused(pod(str(number)))
    assert len(world.waker._refused) == MOST_REFUSED
    assert str(3 * MOST_REFUSED - 1) in world.waker._refused


def test_a_node_that_went_and_a_pod_that_cannot_be_are_no_error(world: World) -> None:
    world.waker.refused(pod("odd"))
    world.waker.refused(pod("a"))
    world.waker.changed("gone")
    world.waker.changed("n1")
    assert not world.waker.look()


def test_who_could_not_be_woken_is_tried_again(world: World) -> None:
    world.failure = ApiUnreachable("away")
    world.fits.add(("a", "n1"))
    world.waker.refused(pod())
    world.waker.changed("n1")
    with pytest.raises(ApiUnreachable):
        world.waker.look()
    world.failure = None
    world.now_s += 1
    assert world.waker.look()
