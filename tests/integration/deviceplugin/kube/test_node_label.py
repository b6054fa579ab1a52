"""The label of the Node, as the API server tells it."""

import logging
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from lightkube.models.meta_v1 import ObjectMeta

from deviceplugin.kube import node_label
from deviceplugin.kube.api_client import ApiRefused, ApiUnreachable
from deviceplugin.kube.node_label import FILE, NodeLabel
from support.api_server.cluster_server import ClusterServer
from support.waiting import wait_until

KEY = "nvidia.com/device-plugin.config"


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_label, "REFRESH_S", 0.05)


@pytest.fixture
def server(server: ClusterServer) -> ClusterServer:
    server.label_node("n1", **{KEY: "a100"})
    return server


def test_a_node_is_told_by_its_metadata(server: ClusterServer) -> None:
    found = server.api().node("n1")

    assert found is not None
    assert found.labels == {KEY: "a100"}
    assert server.api().node("n2") is None
    assert server.calls == [("GET", "/api/v1/nodes/n1"), ("GET", "/api/v1/nodes/n2")]


class Api:
    """Answers, or fails, as a test wants."""

    def __init__(self) -> None:
        self.asked = 0
        self.answer: Callable[[], ObjectMeta | None] = lambda: ObjectMeta(labels={KEY: "a"})

    def node(self, name: str) -> ObjectMeta | None:
        self.asked += 1
        assert name == "n1"
        return self.answer()


def make(api: Api | None, state_dir: Path, node: str = "n1", key: str = KEY) -> NodeLabel:
    return NodeLabel(api, node, key, state_dir)  # type: ignore[arg-type]


def test_nobody_is_asked_before_somebody_wants_to_know(tmp_path: Path) -> None:
    api = Api()
    label = make(api, tmp_path)
    label.start()
    try:
        time.sleep(0.2)
        assert api.asked == 0
        assert label.value() == "a"
        wait_until(lambda: api.asked > 3)
        api.answer = lambda: ObjectMeta()
        wait_until(lambda: label.value() == "")
        api.answer = lambda: ObjectMeta(labels={KEY: "b"})
        wait_until(lambda: label.value() == "b")
    finally:
        label.stop()


def refused() -> ObjectMeta:
    raise ApiRefused(403, "may not get nodes")


def unreachable() -> ObjectMeta:
    raise ApiUnreachable("does not answer")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (refused, "answers 403 for node n1: may not get nodes"),
        (unreachable, "does not answer"),
        (lambda: None, "has no node n1"),
    ],
)
def test_what_was_known_stays_and_the_problem_is_said_once(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    answer: Callable[[], ObjectMeta | None],
    said: str,
) -> None:
    caplog.set_level(logging.INFO, "deviceplugin")
    api = Api()
    label = make(api, tmp_path)
    label.start()
    try:
        assert label.value() == "a"
        api.answer = answer
        wait_until(lambda: said in label.problem)
        asked = api.asked
        wait_until(lambda: api.asked > asked + 3)
        assert label.value() == "a"
        assert len([m for m in caplog.messages if "cannot be read" in m]) == 1
        api.answer = lambda: ObjectMeta(labels={KEY: "b"})
        wait_until(lambda: label.value() == "b")
        assert label.problem == ""
        assert "the node's config label is read again" in caplog.messages
    finally:
        label.stop()


def test_the_last_known_one_survives_a_restart_for_this_node_and_label_alone(
    tmp_path: Path,
) -> None:
    label = make(Api(), tmp_path)
    label.start()
    assert label.value() == "a"
    wait_until((tmp_path / FILE).exists)
    label.stop()

    alone = make(None, tmp_path)
    assert alone.value() == "a"
    assert "no API server" in alone.problem
    assert make(None, tmp_path, node="n2").value() == ""
    assert make(None, tmp_path, key="other").value() == ""


@pytest.mark.parametrize("content", [b"", b"[]", b'{"node": "n1"}', b"\0", b"[" * 60_000, b"3"])
def test_a_damaged_file_is_no_label(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE).write_bytes(content)

    assert make(None, tmp_path).value() == ""
