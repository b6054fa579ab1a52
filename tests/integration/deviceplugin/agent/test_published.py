"""What an agent publishes of its node while pods come and go, the API server is away, and after."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks.simulated_cluster.kinds import LEASE
from deviceplugin.kube import inventory_lease
from deviceplugin.model.published import PublishedNode, PublishedSlice, decode
from deviceplugin.testing import AdmissionFailed, ContainerManifest, PodManifest
from support.api_server.cluster_server import NAMESPACE, ClusterServer
from support.node.agent_process import SERVICE_ACCOUNT, ProcessNode
from support.node.in_process import CONFIG, InProcessNode, running_node
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


def test_memory_that_comes_with_core_is_held_before_the_container_starts(
    server: ClusterServer, node: InProcessNode
) -> None:
    pod = node.admit("lone", {"vgpu-core": 50})
    wait_until(lambda: slices(server))
    (before,) = slices(server)
    assert list(before.units.values()) == [(50, 8)]
    assert before.pod is None  # memory may be asked for yet

    assert node.limit(pod).memory_limit_bytes == 8 << 30
    after = wait_until(is_shown(server, "lone"))
    assert (after.id, after.units) == (before.id, before.units)


def test_units_of_an_init_container_do_not_count_twice(
    server: ClusterServer, node: InProcessNode
) -> None:
    limits = {"nvidia.com/vgpu-core": 50, "nvidia.com/vgpu-memory": 4}
    node.kubelet.admit(
        PodManifest(
            name="job",
            init_containers=(ContainerManifest("first", limits=limits),),
            containers=(ContainerManifest("main", limits=limits),),
        )
    )
    wait_until(is_shown(server, "job"))

    held = [units for each in slices(server) for units in each.units.values()]
    assert [sum(part) for part in zip(*held, strict=True)] == [50, 4]


def test_a_gpu_that_drains_is_published_so_until_its_slice_has_ended(
    server: ClusterServer, node: InProcessNode
) -> None:
    pod = node.admit("p", HALF)
    (uuid,) = wait_until(is_shown(server, "p")).units
    config = node.config.read_text()
    node.config.write_text(config.replace("memoryUnit: 1Gi, compute", "memoryUnit: 2Gi, compute"))

    def drains() -> list[str]:
        found = published(server)
        return [g.uuid for g in found.gpus if g.sharing.drains] if found else []

    wait_until(lambda: drains() == [uuid], "the GPU with the slice drains")
    found = published(server)
    assert found is not None
    assert [gpu.sharing.memory_units for gpu in found.gpus if gpu.uuid == uuid] == [16]
    node.kubelet.finish(pod)
    wait_until(lambda: drains() == [])
    found = published(server)
    assert found is not None
    assert [gpu.sharing.memory_units for gpu in found.gpus] == [16, 8, 8]


def test_the_api_server_is_away_for_a_while_and_admissions_go_on(
    server: ClusterServer, node: InProcessNode
) -> None:
    server.stop()
    pods = [node.admit(f"p{n}", {"vgpu-core": 10, "vgpu-memory": 1}) for n in range(5)]
    node.kubelet.finish(pods[0])
    began_s = time.monotonic()
    assert node.limit(pods[1]).memory_limit_bytes == 1 << 30
    assert time.monotonic() - began_s < 3

    server.start()
    names = {("default", f"p{n}") for n in range(1, 5)}
    wait_until(lambda: {each.pod for each in slices(server)} == names)


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


def test_a_node_with_another_name_has_another_lease(
    server: ClusterServer, node: InProcessNode
) -> None:
    node.admit("p", HALF)
    before = wait_until(is_shown(server, "p"))
    node.stop_agent()
    node.node_name = "new-name"
    node.start_agent()
    node.wait_registered()

    wait_until(lambda: published(server, "new-name"))
    assert slices(server, "new-name") == (before,) == slices(server)


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


def test_a_lone_half_is_refused_at_its_start_where_the_config_forbids_it(
    server: ClusterServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = CONFIG.replace("compute: elastic", "compute: elastic, loneHalves: forbid")
    said = "vgpu-core: 20 without nvidia.com/vgpu-memory is forbidden on this node"
    with running_node(monkeypatch, config=text) as node:
        pair, lone = node.admit("pair", HALF), node.admit("lone", {"vgpu-core": 20})
        before = node.admit("mps", {"mps-core": 20})

        assert node.limit(pair).memory_limit_bytes == 4 << 30
        assert node.limit(before).memory_limit_bytes == 3 << 30
        with pytest.raises(AdmissionFailed, match=said):
            node.kubelet.run_options(lone, "c0")
        found = wait_until(lambda: published(server))
        assert [gpu.sharing.lone_halves for gpu in found.gpus] == [True, False, False]

        # Whoever has started goes on when a config forbids it later.
        everywhere = text.replace("memoryUnit: 1Gi}", "memoryUnit: 1Gi, loneHalves: forbid}")
        node.config.write_text(everywhere)
        wait_until(lambda: not (published(server) or found).gpus[0].sharing.lone_halves)
        assert node.limit(before).memory_limit_bytes == 3 << 30


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
