"""The labels of a node whose agent runs: through its life, its containers and its config."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks.simulated_cluster.kinds import NODE as NODE_KIND
from benchmarks.simulated_cluster.kinds import NODE_FEATURE
from deviceplugin import agent
from deviceplugin.labels import publisher
from support.api_server.cluster_server import NAMESPACE, ClusterServer
from support.node.in_process import CONFIG, running_node
from support.waiting import wait_until

NODE = "test-node"
FEATURE = NAMESPACE, f"nvidia-features-for-{NODE}"


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent, "_LABELS_EVERY_S", 0.1)
    monkeypatch.setattr(publisher, "LEAST_BETWEEN_S", 0.1)


@pytest.fixture
def server(server: ClusterServer, monkeypatch: pytest.MonkeyPatch) -> ClusterServer:
    server.label_node(NODE, **{"kubernetes.io/os": "linux"})
    server.be_found(monkeypatch)
    return server


def config(folder: Path, labels: str = "") -> str:
    machine = folder / "machine"
    machine.write_text("Test Machine (1)\n")
    return (
        f"{CONFIG}flags: {{gfd: {{outputFile: {folder}/features.d/gfd, "
        f"machineTypeFile: {machine}, sleepInterval: 500ms}}}}\n{labels}\n"
    )


def lines_of(path: Path) -> dict[str, str]:
    try:
        text = path.read_text()
    except FileNotFoundError:
        return {}
    return dict(line.split("=", 1) for line in text.splitlines())


def test_a_feature_file_follows_the_node_and_goes_with_the_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "features.d" / "gfd"
    path.parent.mkdir()
    with running_node(monkeypatch, config=config(tmp_path)) as node:
        wait_until(path.exists, "a feature file")
        first = lines_of(path)
        assert first["nvidia.com/gpu.product"] == "test"
        assert first["nvidia.com/gpu.count"] == "3"
        assert first["nvidia.com/gpu.memory"] == "16384"
        assert first["nvidia.com/gpu.machine"] == "Test-Machine-1"
        assert first["nvidia.com/vgpu.capable"] == "true"
        assert first["nvidia.com/vgpu.free-core.1"] == "100"
        assert first["nvidia.com/mps.free-memory.0"] == "16384"

        node.admit("p", {"vgpu-core": 30, "vgpu-memory": 4})
        wait_until(
            lambda: (
                lines_of(path)["nvidia.com/vgpu.free-core.1"] == "70"
                and lines_of(path)["nvidia.com/vgpu.free-memory.1"] == "12288"
            ),
            "labels that follow an allocation",
        )

        path.unlink()
        wait_until(path.exists, "a file that somebody removed is there again")
    assert list(path.parent.iterdir()) == []


def metadata_of_node(server: ClusterServer) -> Any:
    return (server.find(NODE_KIND, NODE) or {})["metadata"]


def labels_of_node(server: ClusterServer) -> Any:
    return metadata_of_node(server)["labels"]


def test_a_node_is_patched_and_keeps_the_labels_of_others(
    tmp_path: Path, server: ClusterServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = config(tmp_path, labels="labels: {writeTo: node}")
    with running_node(monkeypatch, config=text) as node:
        wait_until(lambda: "nvidia.com/gpu.count" in labels_of_node(server), "labels on the Node")
        assert labels_of_node(server)["nvidia.com/mps.free-core.0"] == "100"

        # Without family mps its labels go; another target takes all of them away.
        node.config.write_text(text.replace("{family: mps,", "{family: vgpu,"))
        wait_until(
            lambda: "nvidia.com/mps.free-core.0" not in labels_of_node(server),
            "labels that are not wanted any more are gone",
        )
        assert labels_of_node(server)["nvidia.com/vgpu.free-core.0"] == "100"
        node.config.write_text(text.replace("writeTo: node", "writeTo: none"))
        left = {"kubernetes.io/os": "linux"}
        wait_until(lambda: dict(labels_of_node(server)) == left, "no labels of ours")
        assert not metadata_of_node(server)["annotations"]


def test_a_node_feature_stays_when_the_agent_ends(
    tmp_path: Path, server: ClusterServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = config(tmp_path).replace("flags: {", "flags: {useNodeFeatureAPI: true, ")
    with running_node(monkeypatch, config=text) as node:
        wait_until(lambda: server.all(NODE_FEATURE), "a NodeFeature")
        node.admit("p", {"vgpu-core": 30, "vgpu-memory": 4})
        wait_until(lambda: spec(server)["labels"]["nvidia.com/vgpu.free-core.1"] == "70", "news")

    (found,) = server.all(NODE_FEATURE)
    assert (found["metadata"]["namespace"], found["metadata"]["name"]) == FEATURE
    assert found["metadata"]["labels"] == {"nfd.node.kubernetes.io/node-name": NODE}
    assert spec(server)["labels"]["nvidia.com/gpu.count"] == "3"
    assert spec(server)["features"] == {"attributes": {}, "flags": {}, "instances": {}}


def spec(server: ClusterServer) -> Any:
    return server.all(NODE_FEATURE)[0]["spec"]


def test_a_cluster_without_nfd_is_told_once_and_the_agent_goes_on(
    tmp_path: Path,
    server: ClusterServer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    server.refuse(404, "nodefeatures")
    monkeypatch.setattr("deviceplugin.labels.node_objects.RETRY_S", 0.1)
    text = config(tmp_path, labels="labels: {writeTo: node-feature}")
    with running_node(monkeypatch, config=text) as node:
        wait_until(lambda: sum("nodefeatures" in path for _, path in server.calls) > 4, "tries")
        assert node.admit("p", {"vgpu-core": 30, "vgpu-memory": 4})

    told = [r for r in caplog.records if r.getMessage() == "labels of the node cannot be written"]
    assert len(told) == 1
