"""The cluster's state fed by list and watch, against a stand-in API server over TLS."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from deviceplugin.kube import list_watch
from deviceplugin.pages.published import COMPONENT, COMPONENT_LABEL, INVENTORY_KEY
from deviceplugin.scheduler.cluster import follow
from deviceplugin.scheduler.cluster.cluster import Cluster
from deviceplugin.scheduler.cluster.follow import ClusterFollower
from deviceplugin.scheduler.search.plans import Plan
from support.scheduler_server import LEASES, NAMESPACE, PODS, SchedulerServer, make_scheduler_server
from support.scheduler_values import DOMAIN, first_fit, held_slice, pod_of, published
from support.waiting import PATIENCE_S, bar, wait_until


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_watch, "FIRST_PAUSE_S", 0.02)
    monkeypatch.setattr(list_watch, "LONGEST_PAUSE_S", 0.1)
    monkeypatch.setattr(follow, "_EXPIRE_EVERY_S", 0.02)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SchedulerServer]:
    server = make_scheduler_server(tmp_path)
    server.add_node("n1", published())
    server.add_pod(pod_of("p", 30, 10, node="n1"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(first_fit)


@pytest.fixture
def follower(server: SchedulerServer, cluster: Cluster) -> Iterator[ClusterFollower]:
    follower = ClusterFollower(server.api(), cluster, DOMAIN, NAMESPACE)
    follower.start()
    assert follower.wait_synced(PATIENCE_S)
    yield follower
    follower.stop()


def free(cluster: Cluster, node: str = "n1") -> list[int] | None:
    found = cluster.view(node)
    return [each.core for each in found[1].gpus] if found is not None else None


def promise(cluster: Cluster, name: str) -> None:
    found = cluster.view("n1")
    assert found is not None
    request = pod_of(name, 20, 5)
    plan = first_fit(found[1], request)
    assert isinstance(plan, Plan)
    cluster.assume(request, "n1", plan, time.monotonic() - 1e6)


def watched(server: SchedulerServer) -> None:
    wait_until(lambda: server.open_watches == 2, "both watches are open")


def test_what_was_there_before_is_known(
    server: SchedulerServer, cluster: Cluster, follower: ClusterFollower
) -> None:
    assert free(cluster) == [70, 100]
    watched(server)
    assert follower.is_current
    assert follower.problem == ""
    asked = {each.get("labelSelector") or each["fieldSelector"] for each in server.lists}
    assert asked == {f"{COMPONENT_LABEL}={COMPONENT}", follow.POD_SELECTOR}


def test_pods_and_inventories_come_and_go(
    server: SchedulerServer, cluster: Cluster, follower: ClusterFollower
) -> None:
    watched(server)
    server.add_pod(pod_of("q", 60, 10, node="n1"))
    wait_until(lambda: free(cluster) == [10, 100])
    server.add_node("n1", published(held_slice("s", "p", 30, 10), held_slice("t", "q", 60, 10, 1)))
    wait_until(lambda: free(cluster) == [70, 40])
    server.delete(PODS, "team/q")
    wait_until(lambda: cluster.pod("uid-q") is None)
    assert free(cluster) == [70, 40]
    server.add_node("n1", published(held_slice("s", "p", 30, 10)))
    wait_until(lambda: free(cluster) == [70, 100])
    server.delete(LEASES, "n1")
    wait_until(lambda: not cluster.is_known("n1"))


@pytest.mark.parametrize("text", ["{", '{"form": 99, "domain": "nvidia.com"}', ""])
def test_an_inventory_that_cannot_be_read_is_none(
    server: SchedulerServer, cluster: Cluster, follower: ClusterFollower, text: str
) -> None:
    watched(server)
    server.add_node("n2", published(node="n2"))
    wait_until(lambda: free(cluster, "n2") == [100, 100])
    annotations = {f"{DOMAIN}/{INVENTORY_KEY}": text}
    server.put(LEASES, "n2", {"metadata": {"annotations": annotations}})

    wait_until(lambda: not cluster.is_known("n2"))
    assert follower.is_current


def test_a_pod_whose_amounts_are_none_keeps_what_it_had(
    server: SchedulerServer, cluster: Cluster, follower: ClusterFollower
) -> None:
    watched(server)
    body = server._objects[PODS]["team/p"]
    body["spec"]["containers"][0]["resources"]["limits"][f"{DOMAIN}/vgpu-core"] = "many"
    server.put(PODS, "team/p", body)
    server.add_pod(pod_of("q", 10, 5, node="n1"))

    wait_until(lambda: cluster.pod("uid-q") is not None)
    assert free(cluster) == [60, 100]


def test_a_promise_that_is_not_kept_ends_while_the_present_is_known(
    server: SchedulerServer, cluster: Cluster, follower: ClusterFollower
) -> None:
    watched(server)
    promise(cluster, "r")

    wait_until(lambda: cluster.assumed_count == 0)
    assert free(cluster) == [70, 100]


def test_no_promise_ends_while_the_api_server_is_away(
    server: SchedulerServer,
    cluster: Cluster,
    follower: ClusterFollower,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(list_watch, "CURRENT_S", 0.0)
    watched(server)
    server.stop()
    wait_until(lambda: not follower.is_current)
    promise(cluster, "r")
    time.sleep(0.3)  # some rounds of looking for what expired

    assert cluster.assumed_count == 1
    assert free(cluster) == [50, 100]
    wait_until(lambda: follower.problem != "")
    # It was bound after all, which the watch tells as soon as there is one.
    server.add_pod(pod_of("r", 20, 5, node="n1"))
    server.start()
    wait_until(lambda: follower.is_current and cluster.assumed_count == 0)
    found = cluster.pod("uid-r")
    assert found is not None and found[1] == "n1"
    assert free(cluster) == [50, 100]


@pytest.mark.parametrize("most_s", bar(1.0))
def test_a_thousand_nodes_and_pods_are_known_within_a_second(
    server: SchedulerServer, most_s: float
) -> None:
    for number in range(1000):
        name = f"node{number}"
        server.add_node(name, published(count=8, node=name))
        server.add_pod(pod_of(f"q{number}", 30, 10, node=name))
    cluster = Cluster(first_fit)
    follower = ClusterFollower(server.api(), cluster, DOMAIN, NAMESPACE)
    begun_s = time.monotonic()
    follower.start()
    try:
        assert follower.wait_synced(PATIENCE_S)
        views = cluster.views([f"node{number}" for number in range(1000)])
        took_s = time.monotonic() - begun_s
    finally:
        follower.stop()

    print(f"1000 nodes and 1001 pods known after {took_s:.2f} s")
    assert len(views) == 1000
    assert all(view.gpus[0].core == 70 for _, _, view in views)
    assert took_s <= most_s
