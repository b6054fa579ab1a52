"""Labels through the API server: what is changed, what is left alone, what is tried again."""

import threading
from collections.abc import Mapping
from typing import Any

import pytest

from deviceplugin.labels import node_objects
from deviceplugin.labels.node_objects import ApiOutput, apply_to_node, apply_to_node_feature
from libvgpu.errors import VgpuError

KEPT = "nvidia.com/vgpu.labels"


def merge(into: dict[str, Any], values: Mapping[str, Any]) -> None:
    """Merges as the API server does with a JSON merge patch."""
    for key, value in values.items():
        if value is None:
            into.pop(key, None)
        elif isinstance(value, Mapping):
            merge(into.setdefault(key, {}), value)
        else:
            into[key] = value


class Cluster:
    """One Node and its NodeFeature."""

    def __init__(self) -> None:
        self.metadata: dict[str, Any] = {"labels": {"kubernetes.io/os": "linux"}, "annotations": {}}
        self.features: dict[str, dict[str, Any]] = {}
        self.changes = 0

    def node_metadata(self, node: str) -> tuple[Mapping[str, str], Mapping[str, str]]:
        assert node == "node-1"
        return dict(self.metadata["labels"]), dict(self.metadata["annotations"])

    def patch_node_metadata(self, node: str, values: Mapping[str, Any]) -> None:
        self.changes += 1
        merge(self.metadata, values)

    def node_feature(self, name: str) -> Mapping[str, Any] | None:
        return self.features.get(name)

    def create_node_feature(self, name: str, values: Mapping[str, Any]) -> None:
        self.changes += 1
        self.features[name] = {
            "metadata": {"labels": dict(values["labels"])},
            "spec": {key: dict(value) for key, value in values["spec"].items()},
        }

    def patch_node_feature(self, name: str, values: Mapping[str, Any]) -> None:
        self.changes += 1
        merge(self.features[name], values)


def test_a_node_gets_labels_and_loses_those_that_are_not_wanted_any_more() -> None:
    cluster = Cluster()
    cluster.metadata["labels"]["x/theirs"] = "1"

    apply_to_node(cluster, "node-1", "nvidia.com", {"x/a": "1", "x/b": "2"})
    assert cluster.metadata == {
        "labels": {"kubernetes.io/os": "linux", "x/theirs": "1", "x/a": "1", "x/b": "2"},
        "annotations": {KEPT: "x/a,x/b"},
    }
    apply_to_node(cluster, "node-1", "nvidia.com", {"x/b": "3", "x/c": "4"})

    assert cluster.metadata == {
        "labels": {"kubernetes.io/os": "linux", "x/theirs": "1", "x/b": "3", "x/c": "4"},
        "annotations": {KEPT: "x/b,x/c"},
    }


def test_a_node_that_has_them_is_not_patched() -> None:
    cluster = Cluster()
    for _ in range(3):
        apply_to_node(cluster, "node-1", "nvidia.com", {"x/a": "1"})

    assert cluster.changes == 1
    cluster.metadata["labels"]["x/a"] = "somebody changed it"
    apply_to_node(cluster, "node-1", "nvidia.com", {"x/a": "1"})
    assert (cluster.changes, cluster.metadata["labels"]["x/a"]) == (2, "1")


def test_a_node_from_which_all_are_taken_keeps_no_word_of_them() -> None:
    cluster = Cluster()
    apply_to_node(cluster, "node-1", "nvidia.com", {"x/a": "1"})

    apply_to_node(cluster, "node-1", "nvidia.com", {})

    assert cluster.metadata == {"labels": {"kubernetes.io/os": "linux"}, "annotations": {}}


def test_a_node_feature_is_made_then_followed() -> None:
    cluster = Cluster()
    for labels in ({"x/a": "1", "x/b": "2"}, {"x/b": "2", "x/c": "3"}, {"x/b": "2", "x/c": "3"}):
        apply_to_node_feature(cluster, "node-1", labels)

    assert cluster.features == {
        "nvidia-features-for-node-1": {
            "metadata": {"labels": {"nfd.node.kubernetes.io/node-name": "node-1"}},
            "spec": {
                "features": {"attributes": {}, "flags": {}, "instances": {}},
                "labels": {"x/b": "2", "x/c": "3"},
            },
        }
    }
    assert cluster.changes == 2


def test_a_node_feature_that_another_made_is_taken_over() -> None:
    cluster = Cluster()
    cluster.features["nvidia-features-for-node-1"] = {"metadata": {}, "spec": {}}

    apply_to_node_feature(cluster, "node-1", {"x/a": "1"})

    found = cluster.features["nvidia-features-for-node-1"]
    assert found["metadata"]["labels"] == {"nfd.node.kubernetes.io/node-name": "node-1"}
    assert found["spec"]["labels"] == {"x/a": "1"}


class Calls:
    """Counts calls; the first ``failing`` of them fail."""

    def __init__(self, failing: int = 0) -> None:
        self.failing = failing
        self.applied: list[Mapping[str, str]] = []
        self.tried = 0
        self.news = threading.Condition()

    def __call__(self, labels: Mapping[str, str]) -> None:
        with self.news:
            self.tried += 1
            self.news.notify_all()
            if self.tried <= self.failing:
                raise VgpuError("the API server does not answer")
            self.applied.append(labels)

    def wait_for(self, applied: int) -> None:
        with self.news:
            assert self.news.wait_for(lambda: len(self.applied) >= applied, 10)


def test_labels_are_applied_in_a_thread_and_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_objects, "RETRY_S", 0.01)
    calls = Calls(failing=2)
    output = ApiOutput(calls)

    output.write({"x/a": "1"})
    calls.wait_for(1)
    output.end(keep=False)

    assert (calls.tried, calls.applied) == (3, [{"x/a": "1"}])


@pytest.mark.parametrize("when", ["during the call", "after it"])
def test_newer_labels_are_what_is_tried_again(monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    monkeypatch.setattr(node_objects, "RETRY_S", 0.2)
    applied: list[Mapping[str, str]] = []
    failed, done = threading.Event(), threading.Event()

    def apply(labels: Mapping[str, str]) -> None:
        if not failed.is_set():
            if when == "during the call":
                output.write({"x/a": "2"})
            failed.set()
            raise VgpuError("the API server does not answer")
        applied.append(labels)
        done.set()

    output = ApiOutput(apply)
    output.write({"x/a": "1"})
    assert failed.wait(10)
    if when == "after it":
        output.write({"x/a": "2"})
    assert done.wait(10)
    output.end(keep=False)

    assert applied == [{"x/a": "2"}]


def test_labels_stay_at_the_end_and_go_where_they_are_not_wanted() -> None:
    ended, removed = Calls(), Calls()
    one, other = ApiOutput(ended), ApiOutput(removed)
    for output, calls in ((one, ended), (other, removed)):
        output.write({"x/a": "1"})
        calls.wait_for(1)

    one.end(keep=False)
    other.remove()
    removed.wait_for(2)
    for thread in threading.enumerate():
        if thread.name == "node-labels":
            thread.join(10)

    assert ended.applied == [{"x/a": "1"}]
    assert removed.applied == [{"x/a": "1"}, {}]
