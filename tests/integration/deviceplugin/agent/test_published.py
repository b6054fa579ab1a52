"""What an agent publishes of its node while pods come and go, the API server is away, and after."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks.simulated_cluster.kinds import LEASE
from deviceplugin.kube import inventory_lease
from deviceplugin.pages.published import PublishedNode, PublishedSlice, decode
from support.api_server.cluster_server import NAMESPACE, ClusterServer
from support.node.agent_process import SERVICE_ACCOUNT, ProcessNode
from support.node.in_process import InProcessNode, running_node
from support.waiting import bar, wait_until

NODE = "test-node"
HALF = {"vgpu-core": 50, "vgpu-memory": 4}


@pytest.fixture
def server(server: ClusterServer, monkeypatch: pytest.MonkeyPatch) -> ClusterServer:
    monkeypatch.setattr(inventory_lease, "BACKOFF_MOST_S", 0.5)
    server.label_node(NODE)
    server.be_found(monkeypatch)
    return server


@pytest.fixture
def node(server: ClusterServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[InProcessNode]:
    with running_node(monkeypatch) as node:
        wait_until(lambda: published(server))
        yield node


def published(server: ClusterServer, name: str = NODE) -> PublishedNode | None:
    lease = server.find(LEASE, name, NAMESPACE)
    if lease is None:
        return None
    return decode(lease["metadata"]["annotations"]["nvidia.com/vgpu.inventory"])


def slices(server: ClusterServer, name: str = NODE) -> tuple[PublishedSlice, ...]:
    found = published(server, name)
    return found.slices if found is not None else ()


def is_shown(server: ClusterServer, pod: str) -> Callable[[], PublishedSlice | None]:
    return lambda: next((s for s in slices(server) if s.pod == ("default", pod)), None)


def test_a_slice_is_shown_by_name_and_goes_with_its_pod(
    server: ClusterServer, node: InProcessNode
) -> None:
    first = published(server)
    assert first is not None
    assert [(gpu.index, gpu.sharing.family, gpu.sharing.memory_units) for gpu in first.gpus] == [
        (0, "mps", 16),
        (1, "vgpu", 16),
        (2, "vgpu", 16),
    ]
    assert first.slices == ()

    pod = node.admit("p", HALF)
    found = wait_until(is_shown(server, "p"))
    assert list(found.units.values()) == [(50, 4)]
    assert found.container == "c0"

    node.kubelet.finish(pod)
    wait_until(lambda: slices(server) == ())


# Its name is known within a listing's period, which is 0.25 s here.
@pytest.mark.parametrize("most_s", bar(1.5 + 0.25))
def test_it_is_shown_soon(server: ClusterServer, node: InProcessNode, most_s: float) -> None:
    took_s = []
    for n in range(3):
        began_s = time.monotonic()
        node.admit(f"p{n}", {"vgpu-core": 10, "vgpu-memory": 1})
        wait_until(is_shown(server, f"p{n}"))
        took_s.append(time.monotonic() - began_s)

    assert min(took_s) < most_s


def test_the_lease_stays_when_the_agent_ends_and_the_next_one_goes_on_with_it(
    server: ClusterServer, node: InProcessNode
) -> None:
    node.admit("p", HALF)
    before = wait_until(is_shown(server, "p"))
    node.stop_agent()
    assert slices(server) == (before,)

    server.called.clear()
    node.start_agent()
    node.wait_registered()
    wait_until(lambda: any("leases" in path for _, path in server.calls))
    assert slices(server) == (before,)
    node.admit("q", {"vgpu-core": 10, "vgpu-memory": 1})
    wait_until(is_shown(server, "q"))


def test_whoever_does_not_want_it_publishes_nothing(
    server: ClusterServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(base: Path) -> InProcessNode:
        node = InProcessNode(base)
        node.publish = False
        return node

    with running_node(monkeypatch, silent) as node:
        node.admit("p", HALF)
        time.sleep(1.0)

    assert server.all(LEASE) == []


def test_an_agent_that_is_killed_leaves_its_lease_right(
    server: ClusterServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv(SERVICE_ACCOUNT, str(server.account))

    with running_node(monkeypatch, ProcessNode) as node:
        assert isinstance(node, ProcessNode)
        node.admit("p", HALF)
        wait_until(is_shown(server, "p"))
        pod = node.admit("q", {"vgpu-core": 10, "vgpu-memory": 1})
        node.kill_agent()
        node.kubelet.finish(pod)
        node.start_agent()
        node.wait_registered()

        wait_until(lambda: [each.pod for each in slices(server)] == [("default", "p")])
