"""The Lease of a node: made, kept as the node is, and what happens while nobody takes it."""

import logging
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from benchmarks.simulated_cluster.kinds import LEASE, NODE
from deviceplugin.kube import inventory_lease
from deviceplugin.kube.api_client import ApiRefused, ApiUnreachable
from deviceplugin.kube.inventory_lease import InventoryLease
from deviceplugin.kube.lease_objects import NodeLease
from deviceplugin.model.gpus import Gpu
from deviceplugin.pages.published import PublishedNode, decode
from deviceplugin.policy.devices.layout import Layout, SharedGpu
from deviceplugin.policy.published import size as published_size
from deviceplugin.policy.published.inventory import NodeMoment
from libvgpu.limits import ComputeMode, Family
from support.api_server.cluster_server import NAMESPACE, ClusterServer
from support.waiting import wait_until

KEY = "nvidia.com/vgpu.inventory"
PATH = LEASE.path(NAMESPACE)
NOT_PUBLISHED = "the node's inventory is not published, schedulers use the previous one"


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inventory_lease, "LEAST_BETWEEN_S", 0.05)
    monkeypatch.setattr(inventory_lease, "GATHER_S", 0.01)
    monkeypatch.setattr(inventory_lease, "BACKOFF_FIRST_S", 0.05)
    monkeypatch.setattr(inventory_lease, "BACKOFF_MOST_S", 0.1)


@pytest.fixture
def server(server: ClusterServer) -> ClusterServer:
    server.label_node("n1")
    return server


def moment(gpus: int, **unhealthy: str) -> NodeMoment:
    shared = tuple(
        SharedGpu(Gpu(n, f"GPU-{n}", "t", 16 << 30), Family.VGPU, 1 << 30, ComputeMode.STRICT)
        for n in range(gpus)
    )
    return NodeMoment(Layout("nvidia.com", shared), unhealthy=unhealthy)


def lease(server: ClusterServer, name: str = "n1") -> dict[str, Any] | None:
    return server.find(LEASE, name, NAMESPACE)


def inventory(server: ClusterServer, name: str = "n1") -> PublishedNode | None:
    found = lease(server, name)
    return decode(found["metadata"]["annotations"].get(KEY, "")) if found else None


def gpus(server: ClusterServer) -> int:
    found = inventory(server)
    return len(found.gpus) if found else 0


def writes(server: ClusterServer) -> list[str]:
    return [method for method, path in server.calls if path.startswith(PATH)]


@pytest.fixture
def published(server: ClusterServer) -> Iterator[InventoryLease]:
    found = InventoryLease(NodeLease(server.api(), "n1"))
    found.start()
    yield found
    found.stop()


def test_it_is_made_with_its_label_and_belongs_to_the_node(
    server: ClusterServer, published: InventoryLease
) -> None:
    published.put(moment(2))
    wait_until(lambda: gpus(server) == 2)

    found = lease(server)
    assert found is not None
    assert found["metadata"]["labels"] == {"app.kubernetes.io/component": "vgpu-inventory"}
    assert found["metadata"]["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "uid-n1"}
    ]
    assert found["spec"] == {"holderIdentity": "n1"}

    published.put(moment(3))
    wait_until(lambda: gpus(server) == 3)
    assert writes(server) == ["PATCH", "POST", "PATCH"]


def test_somebody_elses_words_in_it_stay(server: ClusterServer, published: InventoryLease) -> None:
    server.put(LEASE, "n1", NAMESPACE, metadata={"annotations": {"theirs": "x"}, "labels": {}})

    published.put(moment(1))
    wait_until(lambda: gpus(server) == 1)

    found = lease(server)
    assert found is not None
    assert found["metadata"]["annotations"]["theirs"] == "x"
    assert found["metadata"]["labels"] == {"app.kubernetes.io/component": "vgpu-inventory"}


@pytest.mark.parametrize("why_not", ["gone", "refused"])
def test_without_the_uid_of_the_node_it_belongs_to_nobody(
    server: ClusterServer, published: InventoryLease, why_not: str
) -> None:
    if why_not == "gone":
        server.remove(NODE, "n1")
    else:
        server.refuse(403, "/api/v1/nodes/n1")

    published.put(moment(1))
    wait_until(lambda: gpus(server) == 1)

    found = lease(server)
    assert found is not None
    assert "ownerReferences" not in found["metadata"]


def test_what_is_the_same_is_written_once_and_again_after_a_while(
    server: ClusterServer, published: InventoryLease, monkeypatch: pytest.MonkeyPatch
) -> None:
    published.put(moment(1))
    wait_until(lambda: gpus(server) == 1)
    for _ in range(3):
        published.put(moment(1))
        time.sleep(0.1)
    assert writes(server) == ["PATCH", "POST"]

    monkeypatch.setattr(inventory_lease, "REFRESH_S", 0.1)
    published.put(moment(2))  # counts from the next write
    wait_until(lambda: len(writes(server)) >= 5)
    # Somebody removed it together with its Node, which is there again under the same name.
    server.remove(NODE, "n1")
    server.put(NODE, "n1", metadata={"uid": "uid-2"})
    server.remove(LEASE, "n1", NAMESPACE)
    found = wait_until(lambda: lease(server))
    assert found["metadata"]["ownerReferences"][0]["uid"] == "uid-2"
    assert gpus(server) == 2


def test_it_is_written_about_once_a_second_at_most(
    server: ClusterServer, published: InventoryLease, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inventory_lease, "LEAST_BETWEEN_S", 0.5)
    began_s = time.monotonic()
    n = 0
    while time.monotonic() - began_s < 1.6:
        n += 1
        published.put(moment(1 + n % 7))
        time.sleep(0.01)
    took_s = time.monotonic() - began_s

    assert writes(server).count("PATCH") <= 1 + took_s / 0.5
    published.put(moment(9))
    wait_until(lambda: gpus(server) == 9, "the newest")


def told(caplog: pytest.LogCaptureFixture, text: str) -> int:
    return sum(record.getMessage() == text for record in caplog.records)


@pytest.mark.parametrize("status", [503, 403], ids=["away", "without the right"])
def test_a_server_that_takes_nothing_is_told_of_once_and_then_gets_the_newest(
    server: ClusterServer,
    published: InventoryLease,
    caplog: pytest.LogCaptureFixture,
    status: int,
) -> None:
    caplog.set_level(logging.INFO)
    published.put(moment(1))
    wait_until(lambda: gpus(server) == 1)

    server.refuse(status, "leases")
    for n in (2, 3, 4):
        published.put(moment(n))
        time.sleep(0.1)
    wait_until(lambda: writes(server).count("PATCH") >= 4, "tries")
    assert told(caplog, NOT_PUBLISHED) == 1

    server.faults.clear()
    wait_until(lambda: gpus(server) == 4)
    wait_until(lambda: told(caplog, "the node's inventory is published again") == 1)


def test_a_change_that_was_taken_back_meanwhile_is_right_again(
    server: ClusterServer, published: InventoryLease
) -> None:
    published.put(moment(1))
    wait_until(lambda: gpus(server) == 1)
    server.refuse(503)
    published.put(moment(2))
    tries = len(writes(server))
    wait_until(lambda: len(writes(server)) > tries)
    server.faults.clear()
    published.put(moment(1))
    time.sleep(0.4)

    assert gpus(server) == 1


def test_one_that_was_made_meanwhile_is_taken(server: ClusterServer) -> None:
    def race(call: str) -> None:
        if call.startswith("POST"):
            server.put(LEASE, "n1", NAMESPACE)

    server.faults.before = race
    NodeLease(server.api(), "n1").write({KEY: "x"})

    found = lease(server)
    assert found is not None
    assert found["metadata"]["annotations"] == {KEY: "x"}
    assert writes(server) == ["PATCH", "POST", "PATCH"]


def test_whoever_uses_it_is_told_what_went_wrong(server: ClusterServer) -> None:
    server.refuse(403)
    with pytest.raises(ApiRefused, match="planted"):
        NodeLease(server.api(), "n1").write({})
    server.faults.clear()
    server.refuse(500)
    with pytest.raises(ApiUnreachable):
        NodeLease(server.api(), "n1").write({})


class Broken:
    """Fails as no API server does, then writes nothing."""

    def __init__(self, times: int) -> None:
        self.left, self.written = times, 0

    def write(self, annotations: Mapping[str, str]) -> None:
        if self.left:
            self.left -= 1
            raise RuntimeError("surprise")
        self.written += 1


def test_a_surprise_does_not_end_the_thread(caplog: pytest.LogCaptureFixture) -> None:
    broken = Broken(3)
    published = InventoryLease(broken)
    published.start()
    published.put(moment(1))
    wait_until(lambda: broken.written == 1)
    published.stop()

    assert told(caplog, "the node's inventory cannot be published") == 1


def test_less_is_published_where_all_is_too_much_and_that_is_said_once(
    server: ClusterServer,
    published: InventoryLease,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def small(node: PublishedNode) -> published_size.FittedValue:
        return published_size.fitted_value(node, 0)

    monkeypatch.setattr(inventory_lease, "fitted_value", small)
    published.put(moment(1))
    wait_until(lambda: gpus(server) == 1)
    published.put(moment(2))
    wait_until(lambda: gpus(server) == 2)

    text = "the node's inventory is too large for an annotation, so less of it is published"
    assert told(caplog, text) == 1


def test_nothing_is_written_before_something_is_known_and_after_the_end(
    server: ClusterServer,
) -> None:
    published = InventoryLease(NodeLease(server.api(), "n1"))
    published.start()
    time.sleep(0.1)
    published.stop()
    published.put(moment(1))
    time.sleep(0.2)

    assert server.calls == []
