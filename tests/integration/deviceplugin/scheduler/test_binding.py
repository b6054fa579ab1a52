"""Pods bound through a stand-in API server over TLS, with all that can go wrong on the way."""

import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from benchmarks.simulated_cluster.kinds import POD
from deviceplugin.kube import raw_calls
from deviceplugin.model.pod_requests import PodRequest
from deviceplugin.pages.published import PublishedSlice
from deviceplugin.scheduler.binding.binder import Binder, BindFailed, BindOutcome
from deviceplugin.scheduler.cluster.cluster import Cluster
from deviceplugin.scheduler.cluster.follow import ClusterFollower
from deviceplugin.scheduler.search.node_view import NodeView
from deviceplugin.scheduler.search.plans import Plan, Refusal
from support.api_server.cluster_server import NAMESPACE, ClusterServer
from support.scheduler.values import DOMAIN, first_fit, pod_of, published
from support.waiting import wait_until

KEY = f"{DOMAIN}/vgpu.gpus"


@pytest.fixture
def server(server: ClusterServer) -> ClusterServer:
    for name in ("n1", "n2"):
        server.publish(name)
    return server


class World:
    """A binder with its cluster."""

    def __init__(self, server: ClusterServer) -> None:
        self.server = server
        self.now_s = 0.0
        self.obstacle = ""
        self.refusal: str | None = None
        self.asked: list[tuple[PodRequest, NodeView, Plan]] = []
        self.cluster = Cluster(first_fit)
        self.cluster.set_nodes({name: published(node=name) for name in ("n1", "n2")})
        self.binder = Binder(
            server.api(),
            self.cluster,
            first_fit,
            DOMAIN,
            lambda: self.obstacle,
            self.refuse,
            lambda: self.now_s,
        )

    def refuse(self, request: PodRequest, view: NodeView, plan: Plan) -> str | None:
        self.asked.append((request, view, plan))
        return self.refusal

    def bind(self, name: str, node: str = "n1") -> None:
        self.binder.bind("team", name, f"uid-{name}", node)

    def fails(self, name: str, node: str = "n1") -> BindFailed:
        with pytest.raises(BindFailed) as caught:
            self.bind(name, node)
        return caught.value

    @property
    def bindings(self) -> int:
        """How many were asked for."""
        return self.server.counted["POST pods/binding"]

    def bound(self, name: str) -> tuple[str, dict[str, str]]:
        """Returns node and annotations of a pod."""
        pod = self.server.store.get(POD, "team", name).content
        return pod["spec"]["nodeName"], pod["metadata"]["annotations"]

    def change(self, name: str, edit: Callable[[dict[str, Any]], None]) -> None:
        self.server.store.change(POD, "team", name, edit)

    def free(self, node: str = "n1") -> list[int]:
        found = self.cluster.view(node)
        assert found is not None
        return [each.core for each in found[1].gpus]


@pytest.fixture
def world(server: ClusterServer) -> World:
    world = World(server)
    for name in ("p", "q"):
        server.put_pod(pod_of(name, 60, 10))
    return world


def test_node_and_gpus_are_bound_in_one_write(world: World) -> None:
    world.bind("p")
    world.bind("q")

    node, annotations = world.bound("p")
    assert node == "n1"
    assert json.loads(annotations[KEY]) == {"node": "n1", "containers": {"main": ["GPU-n1-0"]}}
    assert json.loads(world.bound("q")[1][KEY])["containers"] == {"main": ["GPU-n1-1"]}
    assert world.free() == [40, 40]
    assert world.cluster.assumed_count == 2


def test_a_pod_that_was_remembered_is_not_read(world: World) -> None:
    world.binder.remember(pod_of("p", 60, 10))
    world.server.remove(POD, "p", "team")

    assert world.fails("p").outcome is BindOutcome.GONE
    world.server.put_pod(pod_of("p", 60, 10))
    world.bind("p")
    assert world.bindings == 2


def test_without_room_nothing_is_sent(world: World) -> None:
    world.cluster.set_pod(pod_of("other", 200, node="n1"))

    error = world.fails("p")

    assert error.outcome is BindOutcome.NO_ROOM
    assert error.message == (
        "n1 has no room for team/p any more: no GPU has 60 core and 10 memory free"
    )
    assert world.fails("p", "n9").message == "n9 has no inventory of GPUs"
    assert world.bindings == 0


def test_who_may_not_bind_sends_and_promises_nothing(world: World) -> None:
    world.obstacle = "another replica leads"
    assert world.fails("p").message == "no pod is bound now: another replica leads"
    world.obstacle = ""
    world.refusal = "quota of namespace team"
    assert world.fails("p").outcome is BindOutcome.NO_ROOM
    assert [str(each[0]) for each in world.asked] == ["team/p"]

    assert world.bindings == 0
    assert world.free() == [100, 100]


def test_a_pod_that_is_bound_already_is_bound_again_by_no_call(world: World) -> None:
    world.bind("p")
    world.cluster.set_pod(pod_of("p", 60, 10, node="n1"))
    world.bind("p")

    assert world.bindings == 1
    error = world.fails("p", "n2")
    assert (error.outcome, error.message) == (BindOutcome.CONFLICT, "team/p is bound to n1")
    assert world.free("n2") == [100, 100]


def test_the_same_bind_before_the_watch_told_is_as_well_as_done(world: World) -> None:
    world.bind("p")
    world.bind("p")

    assert world.bindings == 2
    assert world.free() == [40, 100]
    assert "not known yet" in world.fails("p", "n2").message


def test_a_pod_that_is_gone_is_promised_nothing(world: World) -> None:
    world.server.remove(POD, "p", "team")
    assert world.fails("p").outcome is BindOutcome.GONE

    world.binder.remember(pod_of("p", 60, 10))
    error = world.fails("p")
    assert error.outcome is BindOutcome.GONE
    assert "not found" in error.message
    world.server.put_pod(pod_of("p", 60, 10, uid="another"))
    assert world.fails("p").outcome is BindOutcome.GONE
    assert world.free() == [100, 100]


def test_a_pod_that_others_bound_elsewhere_is_promised_nothing(world: World) -> None:
    world.binder.remember(pod_of("p", 60, 10))
    world.server.put_pod(pod_of("p", 60, 10, node="n2"))

    error = world.fails("p")

    assert error.outcome is BindOutcome.CONFLICT
    assert error.message.startswith("team/p is bound to n2: pod p is already assigned")
    assert world.free() == [100, 100]


def test_a_pod_that_is_being_deleted_is_promised_nothing(world: World) -> None:
    world.change("p", lambda pod: pod["metadata"].update(deletionTimestamp="2026-01-01T00:00:00Z"))

    error = world.fails("p")

    assert error.outcome is BindOutcome.CONFLICT
    assert "not to be bound: pod p is being deleted" in error.message
    assert world.free() == [100, 100]


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (403, BindOutcome.REFUSED),
        (422, BindOutcome.REFUSED),
        (404, BindOutcome.GONE),
        (429, BindOutcome.NOT_REACHED),
    ],
)
def test_a_refusal_takes_the_promise_back(world: World, status: int, outcome: BindOutcome) -> None:
    world.server.refuse(status, "binding")

    assert world.fails("p").outcome is outcome
    assert world.free() == [100, 100]


def test_a_server_that_is_not_there_takes_the_promise_back(world: World) -> None:
    world.binder.remember(pod_of("p", 60, 10))
    world.server.stop()

    assert world.fails("p").outcome is BindOutcome.NOT_REACHED
    assert world.free() == [100, 100]


@pytest.mark.parametrize("status", [500, 503, 504, 0])
@pytest.mark.parametrize("done", [False, True])
def test_a_binding_of_unknown_outcome_keeps_the_promise(
    world: World, status: int, done: bool
) -> None:
    world.server.faults.plant(status, "binding", is_done=done)
    assert world.fails("p").outcome is BindOutcome.UNKNOWN
    assert world.free() == [40, 100]
    # Until it is known the pod may go to this node only, with these GPUs.
    assert world.fails("p", "n2").outcome is BindOutcome.CONFLICT

    world.bind("p")
    assert json.loads(world.bound("p")[1][KEY])["containers"] == {"main": ["GPU-n1-0"]}
    assert world.free() == [40, 100]


def test_an_unknown_outcome_ends_with_its_time(world: World) -> None:
    world.server.faults.plant(500, "binding")
    world.fails("p")
    world.cluster.expire(60.0)

    world.bind("p", "n2")
    assert world.bound("p")[0] == "n2"
    assert (world.free(), world.free("n2")) == ([100, 100], [40, 100])


def test_a_server_that_is_silent_holds_nobody_up_for_long(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = threading.Event()
    world.server.faults.before = lambda call: release.wait(60)
    monkeypatch.setattr(raw_calls, "TIMEOUT_S", 0.5)
    monkeypatch.setattr(raw_calls.call, "__defaults__", (None, None, raw_calls.MOST_BYTES, 0.5))
    world.binder.remember(pod_of("p", 60, 10))

    assert world.fails("p").outcome is BindOutcome.UNKNOWN
    assert world.free() == [40, 100]
    release.set()


def test_two_calls_for_one_pod_are_one_bind(world: World) -> None:
    begun, release = threading.Event(), threading.Event()

    def hold(call: str) -> None:
        if "binding" in call:
            begun.set()
            release.wait(60)

    world.server.faults.before = hold
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(world.bind, "p")
        assert begun.wait(60)
        assert world.fails("p").outcome is BindOutcome.NOT_NOW
        release.set()
        first.result()

    assert world.bindings == 1
    assert world.free() == [40, 100]


def test_a_pod_that_asks_for_nothing_is_bound_as_it_is(world: World) -> None:
    world.server.put_pod(pod_of("plain"))
    world.bind("plain")

    assert world.bound("plain") == ("n1", {})
    assert world.cluster.pod("uid-plain") is None


def test_an_amount_that_is_none_is_refused(world: World) -> None:
    def edit(pod: dict[str, Any]) -> None:
        pod["spec"]["containers"][0]["resources"]["limits"][f"{DOMAIN}/vgpu-core"] = "many"

    world.change("p", edit)

    assert world.fails("p").outcome is BindOutcome.REFUSED
    assert world.bindings == 0


def test_nobody_plans_between_a_plan_and_its_promise(world: World) -> None:
    def slow(view: NodeView, request: PodRequest) -> Plan | Refusal:
        found = first_fit(view, request)
        time.sleep(0.02)
        return found

    binder = Binder(world.server.api(), world.cluster, slow, DOMAIN, lambda: "")
    names = [f"s{number}" for number in range(8)]
    for name in names:
        world.server.put_pod(pod_of(name, 60, 10))
        binder.remember(pod_of(name, 60, 10))
    barrier = threading.Barrier(len(names))

    def bind(name: str) -> bool:
        barrier.wait()
        try:
            binder.bind("team", name, f"uid-{name}", "n1")
        except BindFailed:
            return False
        return True

    with ThreadPoolExecutor(len(names)) as pool:
        assert sum(pool.map(bind, names)) == 2
    assert world.free() == [40, 40]


def test_a_hundred_binds_at_once_promise_nothing_twice(server: ClusterServer) -> None:
    cluster = Cluster(first_fit)
    nodes = {f"node{number}": published(node=f"node{number}", count=4) for number in range(3)}
    for name, node in nodes.items():
        server.publish(name, node)
    api = server.api()
    follower = ClusterFollower(api, cluster, DOMAIN, NAMESPACE)
    follower.start()
    assert follower.wait_synced(60)
    binder = Binder(api, cluster, first_fit, DOMAIN, lambda: "")
    requests = [pod_of(f"r{number}", 30, 20) for number in range(100)]
    for request in requests:
        server.put_pod(request)
        binder.remember(request)
    barrier = threading.Barrier(100)

    def bind(number: int) -> BindOutcome | None:
        barrier.wait()
        try:
            binder.bind("team", f"r{number}", f"uid-r{number}", f"node{number % 3}")
        except BindFailed as error:
            return error.outcome
        return None

    try:
        begun_s = time.monotonic()
        with ThreadPoolExecutor(100) as pool:
            outcomes = Counter(pool.map(bind, range(100)))
        print(f"100 binds in {time.monotonic() - begun_s:.2f} s")
        wait_until(lambda: cluster.assumed_count == 0)
    finally:
        follower.stop()

    bound = 3 * 4 * 3  # on each GPU 3 of 30 core
    assert outcomes == {None: bound, BindOutcome.NO_ROOM: 100 - bound}
    taken: dict[str, list[str]] = {}
    for pod in server.all(POD):
        if where := pod["spec"]["nodeName"]:
            choice = json.loads(pod["metadata"]["annotations"][KEY])
            assert choice["node"] == where
            taken.setdefault(choice["containers"]["main"][0], []).append(pod["metadata"]["name"])
    assert len(taken) == 12
    assert all(len(each) == 3 for each in taken.values())


@pytest.fixture
def settling(world: World) -> World:
    """One whose program has just begun."""
    world.binder = Binder(
        world.server.api(),
        world.cluster,
        first_fit,
        DOMAIN,
        lambda: world.obstacle,
        settles_in_s=lambda: 0.4,
    )
    return world


def test_a_first_promise_is_made_at_once_and_again_by_what_is_known_later(settling: World) -> None:
    """The agent writes meanwhile that somebody has the GPU which was free."""
    with ThreadPoolExecutor(1) as pool:
        bound = pool.submit(settling.bind, "p")
        wait_until(lambda: settling.free() == [40, 100], "it is promised before anything is sent")
        assert settling.bindings == 0
        held = PublishedSlice("s", {"GPU-n1-0": (100, 1)}, ("team", "ended"), "main")
        settling.cluster.set_node("n1", published(held, node="n1"))
        bound.result()

    chosen = json.loads(settling.bound("p")[1][KEY])
    assert chosen["containers"] == {"main": ["GPU-n1-1"]}
    assert settling.free() == [0, 40]


def test_a_first_promise_that_cannot_be_kept_is_taken_back(settling: World) -> None:
    with ThreadPoolExecutor(1) as pool:
        bound = pool.submit(settling.fails, "p")
        wait_until(lambda: settling.free() == [40, 100], "it is promised")
        settling.cluster.set_pod(pod_of("other", 200, node="n1"))
        assert bound.result().outcome is BindOutcome.NO_ROOM

    assert settling.bindings == 0
    assert settling.cluster.assumed_count == 0


def test_what_the_program_before_had_bound_is_not_bound_again(settling: World) -> None:
    with ThreadPoolExecutor(1) as pool:
        bound = pool.submit(settling.bind, "p")
        wait_until(lambda: settling.free() == [40, 100], "it is promised")
        settling.cluster.set_pod(pod_of("p", 60, 10, node="n1"))
        bound.result()

    assert settling.bindings == 0
    assert settling.free() == [40, 100]
