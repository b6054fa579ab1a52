"""The state of the cluster: what is free, what is promised, what is shown."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from deviceplugin.model.chosen_gpus import ChosenGpus
from deviceplugin.model.pod_requests import ContainerKind, PodRequest
from deviceplugin.pages.published import PublishedResource
from deviceplugin.scheduler.cluster.cluster import Cluster
from deviceplugin.scheduler.cluster.node_book import LINGERS_S, WRITTEN_AFTER_S
from deviceplugin.scheduler.cluster.quotas import Held
from deviceplugin.scheduler.search.node_view import NodeView, Reservation, Taken
from deviceplugin.scheduler.search.plans import Plan, Refusal
from libvgpu.errors import VgpuError
from libvgpu.limits import Family
from support.scheduler.values import asking, first_fit, gpu, held_slice, pod_of, published

G0, G1 = "GPU-n1-0", "GPU-n1-1"
INIT = ContainerKind.INIT
#: Core of two containers.
CORE_OF = {"a": 30, "b": 20}


class World(Cluster):
    """A cluster with a clock of its own and a count of plans."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.planned: list[str] = []
        self.refuses = False
        super().__init__(self.make, clock=lambda: self.now_s)

    def make(self, view: NodeView, request: PodRequest) -> Plan | Refusal:
        self.planned.append(request.uid)
        if self.refuses:
            raise VgpuError("annotation of no sense")
        return first_fit(view, request)

    def free(self, node: str = "n1") -> list[tuple[int, int]]:
        found = self.view(node)
        assert found is not None
        return [(room.core, room.memory) for room in found[1].gpus]

    def revision(self, node: str = "n1") -> int:
        found = self.view(node)
        assert found is not None
        return found[0]

    def promise(self, request: PodRequest, node: str = "n1") -> None:
        found = self.view(node)
        assert found is not None
        made = first_fit(found[1], request)
        assert isinstance(made, Plan)
        self.assume(request, node, made, self.now_s)


@pytest.fixture
def world() -> World:
    world = World()
    world.set_nodes({"n1": published(), "n2": published(node="n2")})
    return world


def test_a_node_without_inventory_has_no_view(world: World) -> None:
    assert world.view("n3") is None
    assert not world.is_known("n3")
    world.set_pod(pod_of("p", 30, 10, node="n3"))
    assert world.view("n3") is None
    assert not world.is_known("n3")
    world.set_node("n3", published(node="n3"))
    assert world.free("n3") == [(70, 70), (100, 80)]
    world.set_node("n3", None)
    assert world.view("n3") is None
    assert sorted(world.nodes()) == ["n1", "n2"]


def test_a_list_of_nodes_replaces_those_before(world: World) -> None:
    world.set_nodes({"n2": published(node="n2", count=1)})

    assert world.nodes() == ["n2"]
    assert world.view("n1") is None
    assert world.free("n2") == [(100, 80)]


def test_a_view_and_its_revision_change_together(world: World) -> None:
    before = world.revision()
    other = world.revision("n2")
    view = world.view("n1")

    assert world.view("n1") == view
    world.set_node("n1", published())
    assert world.revision() == before
    world.promise(pod_of("p", 30, 10))
    promised = world.revision()
    assert promised != before
    # Bound, then shown with the very same amounts: what is free is the same.
    world.set_pod(pod_of("p", 30, 10, node="n1"))
    assert world.revision() == promised
    world.set_node("n1", published(held_slice("s", "p", 30, 10)))
    assert world.revision() == promised
    world.remove_pod("uid-p")
    assert world.revision() == promised
    world.set_node("n1", published())
    assert world.revision() not in (before, promised)
    assert world.revision("n2") == other


def test_a_node_that_comes_back_has_another_revision(world: World) -> None:
    before = world.revision()
    world.set_node("n1", None)
    world.set_node("n1", published())

    assert world.revision() != before


def test_a_promise_counts_until_the_inventory_shows_the_pod(world: World) -> None:
    world.promise(pod_of("p", 30, 10))
    assert world.free() == [(70, 70), (100, 80)]
    assert world.is_assumed("uid-p") and world.assumed_count == 1

    world.set_pod(pod_of("p", 30, 10, node="n1"))
    assert not world.is_assumed("uid-p")
    assert world.free() == [(70, 70), (100, 80)]
    # The agent took another GPU, and has not told whose the slice is: counted twice for a moment.
    world.set_node("n1", published(held_slice("s", None, 30, 10, 1)))
    assert world.free() == [(70, 70), (70, 70)]
    world.set_node("n1", published(held_slice("s", "p", 30, 10, 1)))
    assert world.free() == [(100, 80), (70, 70)]
    assert world.planned == []


@pytest.mark.parametrize(
    ("slices", "free"),
    [
        ([(30, 10)], (70, 70)),
        # The second half is still to come, or came as a slice of its own.
        ([(30, 0)], (70, 70)),
        ([(30, 0), (0, 10)], (70, 70)),
        # A second slice with the same amounts, and slices that no container asked for.
        ([(30, 10), (30, 10)], (40, 60)),
        ([(20, 10)], (50, 60)),
        ([(30, 11)], (40, 59)),
    ],
)
def test_a_promise_and_its_slice_count_once_before_the_slice_has_a_name(
    world: World, slices: list[tuple[int, int]], free: tuple[int, int]
) -> None:
    world.promise(pod_of("p", 30, 10))

    world.set_node(
        "n1", published(*(held_slice(f"s{n}", None, *each) for n, each in enumerate(slices)))
    )

    assert world.free() == [free, (100, 80)]


def test_two_promises_and_one_slice_without_a_name_count_as_two(world: World) -> None:
    world.promise(pod_of("p", 30, 10))
    world.promise(pod_of("q", 30, 10))
    world.set_node("n1", published(held_slice("s", None, 30, 10)))
    assert world.free() == [(40, 60), (100, 80)]

    gone = world.view_without("n1", ["uid-p"])
    assert gone is not None and (gone.gpus[0].core, gone.gpus[0].memory) == (70, 70)
    # Whichever of the two had the slice, the other's is still to come.
    world.set_node("n1", published(held_slice("s", "q", 30, 10)))
    assert world.free() == [(40, 60), (100, 80)]


def test_a_container_of_several_matches_by_its_own_amounts(world: World) -> None:
    pair = [asking(name, {"vgpu-core": core, "vgpu-memory": 10}) for name, core in CORE_OF.items()]
    world.promise(pod_of("p", containers=pair))

    world.set_node("n1", published(held_slice("s", None, 20, 10)))
    assert world.free() == [(50, 60), (100, 80)]
    # No container has the amounts of both.
    world.set_node("n1", published(held_slice("s", None, 50, 20)))
    assert world.free() == [(0, 40), (100, 80)]


def test_a_slice_without_a_name_may_be_of_a_pod_whose_gpu_is_guessed(world: World) -> None:
    world.promise(pod_of("p", 30, 10))
    world.set_pod(pod_of("q", 30, 10, node="n1"))  # somebody else bound it
    assert world.free() == [(40, 60), (100, 80)]

    world.set_node("n1", published(held_slice("s", None, 30, 10)))

    assert world.free() == [(10, 50), (100, 80)]


def test_a_program_that_starts_finds_a_full_gpu_with_the_slice_that_has_no_name(
    world: World,
) -> None:
    world.set_node("n1", published(held_slice("s", None, 100, 80)))

    world.set_pod(pod_of("p", 100, 80, node="n1", chosen=ChosenGpus("n1", {"main": (G0,)})))

    assert world.free() == [(0, 0), (100, 80)]
    assert world.planned == []


def test_devices_without_a_name_are_those_of_pods_that_wait(world: World) -> None:
    for name in "pq":
        pod = pod_of(name, containers=[asking("main", {"gpu": 2})])
        world.assume(pod, "n1", Plan({}, Reservation({}, {"nvidia.com/gpu": 2})), world.now_s)

    for unnamed, left in ((0, 4), (2, 4), (4, 4), (5, 3)):
        resource = PublishedResource("nvidia.com/gpu", 8, unnamed, (("", ""),) * unnamed)
        world.set_node("n1", published(resources=[resource]))
        found = world.view("n1")
        assert found is not None and found[1].devices["nvidia.com/gpu"].free == left


def test_a_promise_that_nobody_keeps_expires(world: World) -> None:
    world.promise(pod_of("p", 30, 10))
    world.promise(pod_of("q", 30, 10))
    world.set_pod(pod_of("q", 30, 10, node="n1"))

    assert world.expire(world.now_s + 59.9) == []
    assert [str(each) for each in world.expire(world.now_s + 60.0)] == ["team/p"]
    assert world.pod("uid-p") is None
    assert world.free() == [(70, 70), (100, 80)]
    assert world.expire(world.now_s + 1e9) == []


def test_a_promise_can_be_taken_back_and_a_bound_pod_cannot(world: World) -> None:
    world.promise(pod_of("p", 30, 10))
    world.promise(pod_of("q", 30, 10))
    world.set_pod(pod_of("q", 30, 10, node="n1"))

    for uid in ("uid-p", "uid-q", "uid-of-nobody"):
        world.forget(uid)

    assert world.pod("uid-p") is None
    found = world.pod("uid-q")
    assert found is not None and found[1] == "n1"
    assert world.free() == [(70, 70), (100, 80)]


def test_a_pod_that_is_promised_one_node_and_bound_to_another_has_the_other(world: World) -> None:
    world.promise(pod_of("p", 30, 10))

    world.set_pod(pod_of("p", 30, 10, node="n2"))

    assert world.free("n1") == [(100, 80), (100, 80)]
    assert world.free("n2") == [(70, 70), (100, 80)]


@pytest.mark.parametrize("ended", [True, False])
def test_what_a_pod_took_lingers_when_it_goes_before_it_was_shown(
    world: World, ended: bool
) -> None:
    world.set_pod(pod_of("p", 30, 10, node="n1"))
    assert world.free() == [(70, 70), (100, 80)]

    if ended:
        world.set_pod(pod_of("p", 30, 10, node="n1", is_ended=True))
    else:
        world.remove_pod("uid-p")

    # Its agent may have given it what it asked for and not told yet.
    assert world.pod("uid-p") is None
    assert world.free() == [(70, 70), (100, 80)]
    world.set_node("n1", published(held_slice("s", "other", 20, 5, 1)))
    assert world.free() == [(70, 70), (80, 75)]
    world.expire(world.now_s + LINGERS_S / 2)
    assert world.free() == [(70, 70), (80, 75)]
    world.expire(world.now_s + LINGERS_S)
    assert world.free() == [(100, 80), (80, 75)]


def test_what_lingers_of_a_pod_is_what_the_inventory_shows_as_soon_as_it_does(
    world: World,
) -> None:
    world.set_pod(pod_of("p", 30, 10, node="n1"))
    world.remove_pod("uid-p")
    world.set_node("n1", published(held_slice("s", "p", 30, 10, 1)))
    assert world.free() == [(100, 80), (70, 70)]
    # A later pod of its name is not shown by that.
    world.promise(pod_of("p", 50, 10, uid="later", created_at=5.0))
    assert sum(core for core, _ in world.free()) == 200 - 30 - 50
    world.set_node("n1", published())
    assert sum(core for core, _ in world.free()) == 200 - 50


def test_a_later_pod_of_the_name_is_not_shown_while_something_lingers_of_the_first(
    world: World,
) -> None:
    world.set_pod(pod_of("p", 30, 10, node="n1", uid="first"))
    assert world.free() == [(70, 70), (100, 80)]
    world.remove_pod("first")
    world.promise(pod_of("p", 30, 10, uid="later", created_at=5.0))
    assert world.free() == [(40, 60), (100, 80)]
    world.set_node("n1", published(held_slice("s", "p", 30, 10, 1)))  # of whom?
    assert world.free() == [(40, 60), (70, 70)]
    world.expire(world.now_s + LINGERS_S)
    assert sum(core for core, _ in world.free()) == 200 - 30


def test_the_next_pod_of_a_name_is_not_shown_by_what_the_one_before_held(world: World) -> None:
    world.set_pod(pod_of("p", 30, 10, node="n1", uid="first"))
    world.set_node("n1", published(held_slice("s", "p", 30, 10)))
    world.remove_pod("first")
    world.promise(pod_of("p", 30, 10, uid="second", created_at=5.0))
    world.set_pod(pod_of("p", 30, 10, node="n1", uid="second", created_at=5.0))

    assert world.free() == [(40, 60), (100, 80)]
    world.set_node("n1", published())
    assert world.free() == [(70, 70), (100, 80)]
    world.set_node("n1", published(held_slice("t", "p", 30, 10, 1)))
    assert world.free() == [(100, 80), (70, 70)]


def test_a_later_pod_of_a_name_replaces_one_whose_end_was_not_told_yet(world: World) -> None:
    first = pod_of("p", 30, 10, node="n1", uid="first", created_at=1.0)
    world.set_pod(first)
    world.set_node("n1", published(held_slice("s", "p", 30, 10)))
    world.promise(pod_of("p", 30, 10, uid="second", created_at=2.0), "n2")

    assert world.pod("first") is None
    world.set_pod(first)  # told late
    assert world.pod("first") is None
    assert world.pod("second") is not None
    assert world.free("n2") == [(70, 70), (100, 80)]
    world.remove_pod("first")
    assert world.free("n2") == [(70, 70), (100, 80)]


def test_an_inventory_written_long_after_a_pod_went_has_the_next_ones_slices(world: World) -> None:
    held = published(held_slice("s", "p", 30, 10))
    world.set_pod(pod_of("p", 30, 10, node="n1", uid="first"))
    world.set_node("n1", held)
    world.remove_pod("first")
    world.set_pod(pod_of("p", 30, 10, node="n1", uid="second"))
    assert world.free() == [(40, 60), (100, 80)]

    world.now_s += WRITTEN_AFTER_S
    assert world.free() == [(40, 60), (100, 80)]  # no agent wrote since
    world.set_nodes({"n1": held})
    assert world.free() == [(40, 60), (100, 80)]  # nobody knows when it was written
    world.set_node("n1", held)
    assert world.free() == [(70, 70), (100, 80)]


def test_pods_known_at_the_start_are_shown_by_what_the_inventory_has(world: World) -> None:
    world = World()
    world.set_pods([pod_of("p", 30, 10, node="n1"), pod_of("q", 20, 5, node="n1")])
    world.set_nodes({"n1": published(held_slice("s", "p", 30, 10))})

    assert world.free() == [(50, 65), (100, 80)]
    assert world.planned == ["uid-q"]


def test_a_list_of_pods_forgets_those_that_are_missing_but_no_promise(world: World) -> None:
    world.set_pods([pod_of("p", 30, 10, node="n1"), pod_of("q", 10, 5, node="n1")])
    world.promise(pod_of("r", 20, 20))

    world.set_pods(
        [
            pod_of("q", 10, 5, node="n1"),
            pod_of("s", 90, 5, node="n2", is_ended=True),
            pod_of("t", 90, 5),
        ]
    )

    assert world.pod("uid-p") is None
    world.expire(world.now_s + LINGERS_S)
    assert world.is_assumed("uid-r")
    assert world.free() == [(70, 55), (100, 80)]
    assert world.free("n2") == [(100, 80), (100, 80)]


def test_a_pod_bound_by_others_takes_the_gpus_that_were_chosen_for_it(world: World) -> None:
    chosen = ChosenGpus("n1", {"main": (G1,)})
    world.set_pod(pod_of("p", 30, 10, node="n1", chosen=chosen))

    assert world.free() == [(100, 80), (70, 70)]
    assert world.planned == []


@pytest.mark.parametrize(
    "chosen",
    [
        None,
        ChosenGpus("n2", {"main": (G1,)}),
        ChosenGpus("n1", {"main": ("GPU-of-nobody",)}),
        ChosenGpus("n1", {"other": (G1,)}),
    ],
)
def test_without_a_choice_that_is_meant_the_planner_says(
    world: World, chosen: ChosenGpus | None
) -> None:
    world.set_pod(pod_of("p", 30, 10, node="n1", chosen=chosen))

    assert world.free() == [(70, 70), (100, 80)]
    assert world.free() == [(70, 70), (100, 80)]
    assert world.planned == ["uid-p"]


def test_chosen_gpus_without_room_are_not_where_the_pod_will_be(world: World) -> None:
    world.set_node("n1", published(held_slice("s", None, 80, 10, 1)))
    chosen = ChosenGpus("n1", {"main": (G1,)})
    world.set_pod(pod_of("p", 30, 10, node="n1", chosen=chosen))

    assert world.free() == [(70, 70), (20, 70)]


def test_pods_bound_by_others_are_planned_in_the_order_in_which_they_were_made(
    world: World,
) -> None:
    world.set_pods(
        [
            pod_of("late", 60, 10, node="n1", created_at=2.0),
            pod_of("early", 70, 10, node="n1", created_at=1.0),
        ]
    )

    assert world.free() == [(30, 70), (40, 70)]


@pytest.mark.parametrize("by_annotation", [False, True])
def test_a_pod_that_nobody_can_place_takes_every_gpu_that_could_hold_it(
    world: World, by_annotation: bool
) -> None:
    world.set_node("n1", published(held_slice("s", None, 80, 10), held_slice("t", None, 90, 10, 1)))
    world.refuses = by_annotation
    world.set_pod(pod_of("p", 30, 10, node="n1"))

    assert world.free() == [(0, 60), (0, 60)]
    world.set_node("n1", published(held_slice("t", None, 90, 10, 1), held_slice("u", "p", 30, 10)))
    assert world.free() == [(70, 70), (10, 70)]


def test_a_promise_of_a_gpu_that_is_lost_is_planned_again(world: World) -> None:
    world.promise(pod_of("p", 30, 10))
    world.set_node("n1", published(gpus=[gpu(0, unhealthy="XID 79"), gpu(1)]))

    assert world.free() == [(100, 80), (70, 70)]


def test_devices_are_promised_and_shown_by_count(world: World) -> None:
    def node(*pods: tuple[str, str]) -> Sequence[PublishedResource]:
        return [PublishedResource("nvidia.com/gpu", 4, len(pods), pods)]

    world.set_node("n1", published(count=0, resources=node()))
    request = pod_of("p", containers=[asking("a", {"gpu": 2})])
    plan = Plan({}, Reservation({}, {"nvidia.com/gpu": 2}))
    world.assume(request, "n1", plan, world.now_s)

    def free() -> int:
        found = world.view("n1")
        assert found is not None
        return found[1].devices["nvidia.com/gpu"].free

    assert free() == 2
    world.set_pod(replace(request, node="n1"))
    world.set_node("n1", published(count=0, resources=node(("", ""), ("", ""))))
    assert free() == 2
    world.set_node("n1", published(count=0, resources=node(("team", "p"), ("team", "p"))))
    assert free() == 2


def test_holders_have_what_is_shown_or_promised(world: World) -> None:
    world.set_node("n1", published(held_slice("s", "p", 35, 12, 1)))
    world.set_pod(pod_of("p", 30, 10, node="n1", priority=7, created_at=3.0))
    world.promise(pod_of("q", 20, 5))

    found = {each.uid: each for each in world.holders("n1")}

    assert found["uid-p"].reservation == Reservation({G1: Taken(35, 12, 1)})
    assert (found["uid-p"].priority, found["uid-p"].created_at) == (7, 3.0)
    assert found["uid-q"].reservation == Reservation({G0: Taken(20, 5, 1)})
    assert world.holders("n3") == []


def test_a_view_without_some_pods_has_their_room(world: World) -> None:
    resources = [PublishedResource("nvidia.com/gpu", 4, 2, (("team", "p"), ("team", "r")))]
    held = held_slice("s", "p", 35, 12, 1), held_slice("x", None, 1, 1, 1)
    world.set_node("n1", published(*held, resources=resources))
    containers = [asking("main", {"vgpu-core": 30, "vgpu-memory": 10, "gpu": 1})]
    world.set_pod(pod_of("p", node="n1", containers=containers))
    world.promise(pod_of("q", 20, 5))
    before = world.view("n1")

    without_p = world.view_without("n1", ["uid-p", "uid-unknown"])
    without_q = world.view_without("n1", ["uid-q"])

    assert without_p is not None and without_q is not None
    assert [(each.core, each.memory) for each in without_p.gpus] == [(80, 75), (99, 79)]
    assert without_p.devices["nvidia.com/gpu"].free == 3
    assert [(each.core, each.memory) for each in without_q.gpus] == [(100, 80), (64, 67)]
    assert world.view("n1") == before
    assert world.view_without("n3", []) is None


def test_usage_is_what_the_pods_of_a_namespace_hold_everywhere(world: World) -> None:
    mps = gpu(1, family="mps")
    world.set_node(
        "n1",
        published(held_slice("s", "p", 30, 10), held_slice("t", "m", 5, 2, 1), gpus=[gpu(0), mps]),
    )
    world.set_pod(pod_of("p", 30, 10, node="n1"))
    world.promise(pod_of("q", 20, 5), "n2")
    world.promise(pod_of("x", 1, 1, namespace="other"), "n2")

    gib = 1 << 30
    assert world.usage("team") == {Family.VGPU: Held(50, 15 * gib), Family.MPS: Held(5, 2 * gib)}
    assert world.usage("other") == {Family.VGPU: Held(1, gib)}
    assert world.usage("nobody") == {}
    world.forget("uid-x")
    world.forget("uid-q")
    world.set_node("n1", published(held_slice("s", "p", 30, 10)))
    assert world.usage("team") == {Family.VGPU: Held(30, 10 * gib)}
    assert world.usage("other") == {}
    world.set_nodes({})
    assert world.usage("team") == {}


def test_a_pod_of_plain_init_containers_alone_is_counted_twice_for_some_time(world: World) -> None:
    request = pod_of(
        "p", node="n1", containers=[asking("a", {"vgpu-core": 30, "vgpu-memory": 10}, INIT)]
    )
    anonymous = published(held_slice("s", None, 30, 10))
    world.set_pod(request)
    world.set_node("n1", anonymous)
    world.now_s += WRITTEN_AFTER_S
    world.set_node("n1", anonymous)  # the kubelet has told nothing: the slice may be another's
    assert world.free() == [(40, 60), (100, 80)]
    world.set_pod(replace(request, is_acknowledged=True))
    world.now_s += WRITTEN_AFTER_S - 1
    world.set_node("n1", anonymous)
    assert world.free() == [(40, 60), (100, 80)]
    world.now_s += 1
    world.set_nodes({"n1": anonymous})
    assert world.free() == [(40, 60), (100, 80)]

    world.set_node("n1", anonymous)

    assert world.free() == [(70, 70), (100, 80)]
    assert world.usage("team") == {Family.VGPU: Held(30, 10 << 30)}
    world.remove_pod("uid-p")
    assert world.free() == [(70, 70), (100, 80)]


def test_a_pod_with_other_containers_waits_for_its_name(world: World) -> None:
    world.set_pod(replace(pod_of("p", 30, 10, node="n1"), is_acknowledged=True))
    world.now_s += WRITTEN_AFTER_S
    world.set_node("n1", published())

    assert world.free() == [(70, 70), (100, 80)]
