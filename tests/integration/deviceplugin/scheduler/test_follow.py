"""The cluster's state fed by list and watch, against a stand-in API server over TLS."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from benchmarks.simulated_cluster.kinds import LEASE, POD
from deviceplugin.kube import list_watch
from deviceplugin.model.published import COMPONENT, COMPONENT_LABEL, INVENTORY_KEY
from deviceplugin.scheduler.cluster import follow
from deviceplugin.scheduler.cluster.cluster import Cluster
from deviceplugin.scheduler.cluster.follow import ClusterFollower
from deviceplugin.scheduler.search.plans import Plan
from support.api_server.cluster_server import NAMESPACE, ClusterServer
from support.scheduler.values import DOMAIN, first_fit, held_slice, pod_of, published
from support.waiting import PATIENCE_S, bar, wait_until


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_watch, "FIRST_PAUSE_S", 0.02)
    monkeypatch.setattr(list_watch, "LONGEST_PAUSE_S", 0.1)
    monkeypatch.setattr(follow, "_EXPIRE_EVERY_S", 0.02)


@pytest.fixture
def server(server: ClusterServer) -> ClusterServer:
    server.publish("n1")
    server.put_pod(pod_of("p", 30, 10, node="n1"))
    return server


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(first_fit)


@pytest.fixture
def follower(server: ClusterServer, cluster: Cluster) -> Iterator[ClusterFollower]:
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


def watched(server: ClusterServer) -> None:
    wait_until(lambda: server.open_watches == 2, "both watches are open")


def test_what_was_there_before_is_known(
    server: ClusterServer, cluster: Cluster, follower: ClusterFollower
) -> None:
    assert free(cluster) == [70, 100]
    watched(server)
    assert follower.is_current
    assert follower.problem == ""
    (inventories,) = server.asked(LEASE, watch=False)
    assert inventories["labelSelector"] == f"{COMPONENT_LABEL}={COMPONENT}"
    (pods,) = server.asked(POD, watch=False)
    assert pods["fieldSelector"] == follow.POD_SELECTOR


def test_pods_and_inventories_come_and_go(
    server: ClusterServer, cluster: Cluster, follower: ClusterFollower
) -> None:
    watched(server)
    server.put_pod(pod_of("q", 60, 10, node="n1"))
    wait_until(lambda: free(cluster) == [10, 100])
    server.publish("n1", published(held_slice("s", "p", 30, 10), held_slice("t", "q", 60, 10, 1)))
    wait_until(lambda: free(cluster) == [70, 40])
    server.remove(POD, "q", "team")
    wait_until(lambda: cluster.pod("uid-q") is None)
    assert free(cluster) == [70, 40]
    server.publish("n1", published(held_slice("s", "p", 30, 10)))
    wait_until(lambda: free(cluster) == [70, 100])
    server.remove(LEASE, "n1", NAMESPACE)
    wait_until(lambda: not cluster.is_known("n1"))


@pytest.mark.parametrize("text", ["{", '{"form": 99, "domain": "nvidia.com"}', ""])
def test_an_inventory_that_cannot_be_read_is_none(
    server: ClusterServer, cluster: Cluster, follower: ClusterFollower, text: str
) -> None:
    watched(server)
    server.publish("n2", published(node="n2"))
    wait_until(lambda: free(cluster, "n2") == [100, 100])
    annotations = {f"{DOMAIN}/{INVENTORY_KEY}": text}
    metadata = {"annotations": annotations, "labels": {COMPONENT_LABEL: COMPONENT}}
    server.put(LEASE, "n2", NAMESPACE, metadata=metadata)

    wait_until(lambda: not cluster.is_known("n2"))
    assert follower.is_current


def test_a_pod_whose_amounts_are_none_keeps_what_it_had(
    server: ClusterServer, cluster: Cluster, follower: ClusterFollower
) -> None:
    watched(server)

    def edit(pod: dict[str, Any]) -> None:
        pod["spec"]["containers"][0]["resources"]["limits"][f"{DOMAIN}/vgpu-core"] = "many"

    server.store.change(POD, "team", "p", edit)
    server.put_pod(pod_of("q", 10, 5, node="n1"))

    wait_until(lambda: cluster.pod("uid-q") is not None)
    assert free(cluster) == [60, 100]


def test_a_promise_that_is_not_kept_ends_while_the_present_is_known(
    server: ClusterServer, cluster: Cluster, follower: ClusterFollower
) -> None:
    watched(server)
    promise(cluster, "r")

    wait_until(lambda: cluster.assumed_count == 0)
    assert free(cluster) == [70, 100]


def test_no_promise_ends_while_the_api_server_is_away(
    server: ClusterServer,
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
    server.put_pod(pod_of("r", 20, 5, node="n1"))
    server.start()
    wait_until(lambda: follower.is_current and cluster.assumed_count == 0)
    found = cluster.pod("uid-r")
    assert found is not None and found[1] == "n1"
    assert free(cluster) == [50, 100]


@pytest.mark.parametrize("most_s", bar(1.0))
def test_a_thousand_nodes_and_pods_are_known_within_a_second(
    server: ClusterServer, most_s: float
) -> None:
    for number in range(1000):
        name = f"node{number}"
        server.publish(name, published(count=8, node=name))
        server.put_pod(pod_of(f"q{number}", 30, 10, node=name))
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
