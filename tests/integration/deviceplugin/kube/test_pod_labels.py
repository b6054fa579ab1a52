"""Rules that match by the labels of pods, which come from the API server."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from lightkube.models.meta_v1 import ObjectMeta

from deviceplugin.kube import pod_labels
from deviceplugin.model.allocations import Owner
from support.api_server.cluster_server import ClusterServer
from support.node.in_process import CONFIG, GIB, InProcessNode, running_node
from support.waiting import wait_until

PAIR = {"vgpu-core": 40, "vgpu-memory": 8}
RULES = """\
limits:
- {match: {podLabels: {tier: batch}}, memory: 1Gi}
- {match: {podLabels: {tier: web}}, memory: 2Gi}
"""


@pytest.fixture
def node(server: ClusterServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[InProcessNode]:
    server.be_found(monkeypatch)
    monkeypatch.setattr(pod_labels, "REFRESH_S", 0.5)
    monkeypatch.setattr(pod_labels, "RETRY_S", 0.2)
    with running_node(monkeypatch, config=CONFIG + RULES) as node:
        yield node


def test_a_rule_holds_for_the_pods_with_its_labels_and_follows_them(
    server: ClusterServer, node: InProcessNode
) -> None:
    server.label_pod("batch", tier="batch", app="x")
    server.label_pod("plain", app="x")
    batch, plain = node.admit("batch", PAIR), node.admit("plain", PAIR)

    wait_until(lambda: node.limit(batch).memory_limit_bytes == GIB)
    assert node.limit(plain).memory_limit_bytes == 8 * GIB

    server.label_pod("batch", tier="web")
    wait_until(lambda: node.limit(batch).memory_limit_bytes == 2 * GIB)
    node.config.write_text(CONFIG)
    wait_until(lambda: node.limit(batch).memory_limit_bytes == 8 * GIB)


def test_what_was_told_stays_while_the_server_is_away_and_over_a_restart(
    server: ClusterServer, node: InProcessNode
) -> None:
    server.label_pod("batch", tier="batch")
    pod = node.admit("batch", PAIR)
    wait_until(lambda: node.limit(pod).memory_limit_bytes == GIB)
    server.stop()

    node.stop_agent()
    node.start_agent()
    node.wait_registered()

    assert node.limit(pod).memory_limit_bytes == GIB
    late = node.admit("late", PAIR)
    server.label_pod("late", tier="web")
    assert node.limit(late).memory_limit_bytes == 8 * GIB, "its request holds till it is known"
    server.start()
    wait_until(lambda: node.limit(late).memory_limit_bytes == 2 * GIB)


class CountingApi:
    """Says that every pod is of one tier."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def pod(self, namespace: str, name: str) -> ObjectMeta:
        self.asked.append(name)
        return ObjectMeta(labels={"tier": "batch"})


def test_a_pod_is_asked_for_once_and_only_while_a_rule_needs_it(tmp_path: Path) -> None:
    api, changes = CountingApi(), []
    labels = pod_labels.PodLabels(api, tmp_path)  # type: ignore[arg-type]
    labels.start(lambda: changes.append(1))
    try:
        labels.follow({})
        time.sleep(0.1)
        assert api.asked == []

        owners = {
            "1": Owner("ns", "a", "c0"),
            "2": Owner("ns", "a", "c1"),
            "3": Owner("ns", "b", "c0"),
        }
        labels.follow(owners)
        wait_until(lambda: labels.of("3") is not None and changes)
        labels.follow(owners)
        time.sleep(0.1)
        assert sorted(api.asked) == ["a", "b"]
        assert labels.of("1") == labels.of("2") == {"tier": "batch"}
        assert changes == [1]
    finally:
        labels.stop()


@pytest.mark.parametrize("content", ["", "[]", '{"a": 3}', "\0"])
def test_a_damaged_file_of_labels_is_no_labels(tmp_path: Path, content: str) -> None:
    (tmp_path / pod_labels.FILE).write_text(content)
    api = object()

    labels = pod_labels.PodLabels(api, tmp_path)  # type: ignore[arg-type]

    assert labels.of("a") is None


def test_what_is_saved_is_read(tmp_path: Path) -> None:
    (tmp_path / pod_labels.FILE).write_text(json.dumps({"a": {"tier": "batch"}}))

    assert pod_labels.PodLabels(object(), tmp_path).of("a") == {"tier": "batch"}  # type: ignore[arg-type]
