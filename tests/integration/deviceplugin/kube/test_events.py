"""Kubernetes Events over TLS: from the running agent, and through every failure of the API server.

The agent's own part is in the second half: what the stand-in kubelet is refused, and what a rule
changes, arrives at an API server as Events of node and pod.
"""

import calendar
import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deviceplugin.kube import event_sender, notices
from deviceplugin.kube.api_client import ApiServer
from deviceplugin.kube.event_sender import EventSender
from deviceplugin.model.allocations import Owner
from deviceplugin.model.notices import EventReason, Notice, node_notice
from deviceplugin.testing import AdmissionFailed
from support.api_server.cluster_server import ClusterServer
from support.node.in_process import InProcessNode, running_node
from support.waiting import PATIENCE_S, wait_until

POD = Notice(EventReason.LIMITS_CHANGED, "less", Owner("team-a", "pod", "main"))
NODE = node_notice(EventReason.ALLOCATION_REFUSED, "not free")


@pytest.fixture
def sender(server: ClusterServer) -> Iterator[EventSender]:
    sender = EventSender(server.api(), "n1")
    sender.start()
    yield sender
    sender.stop()


def only(server: ClusterServer) -> dict[str, Any]:
    (found,) = server.events
    return found


def test_an_event_of_a_pod_names_it_by_its_uid(server: ClusterServer, sender: EventSender) -> None:
    server.label_pod("pod", "team-a")

    sender.put(POD)
    wait_until(lambda: bool(server.events))

    told = only(server)
    assert told["involvedObject"] == {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": "pod",
        "namespace": "team-a",
        "uid": "uid-pod",
    }
    assert told["metadata"]["namespace"] == "team-a"
    assert (told["reason"], told["message"], told["type"]) == (
        "LimitsChanged",
        "container main: less",
        "Normal",
    )
    assert told["source"] == {"component": "vgpu-agent", "host": "n1"}
    assert told["count"] == 1
    assert told["firstTimestamp"] == told["lastTimestamp"]
    moment_s = calendar.timegm(time.strptime(told["firstTimestamp"], "%Y-%m-%dT%H:%M:%SZ"))
    assert abs(time.time() - moment_s) < 60


def test_a_pod_we_may_not_look_up_is_named_without_uid(
    server: ClusterServer, sender: EventSender
) -> None:
    sender.put(POD)
    wait_until(lambda: bool(server.events))

    assert "uid" not in only(server)["involvedObject"]


def test_an_event_of_the_node_stands_in_the_default_namespace(
    server: ClusterServer, sender: EventSender
) -> None:
    sender.put(NODE)
    wait_until(lambda: bool(server.events))

    told = only(server)
    assert told["involvedObject"] == {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "n1"}
    assert (told["metadata"]["namespace"], told["type"]) == ("default", "Warning")


def test_a_long_text_is_cut_to_what_the_server_takes(
    server: ClusterServer, sender: EventSender
) -> None:
    sender.put(Notice(EventReason.RAISE_REFUSED, "x" * 5000, POD.subject))
    wait_until(lambda: bool(server.events))

    message = only(server)["message"]
    assert message.startswith("container main: xxx")
    assert len(message) == event_sender.MOST_TEXT


def test_equal_events_are_counted_up_in_one(
    server: ClusterServer, sender: EventSender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notices, "WINDOW_S", 2.0)  # all five come within it

    for _ in range(5):
        sender.put(NODE)
    wait_until(lambda: bool(server.events) and only(server)["count"] == 5)

    assert [method for method, _ in server.calls] == ["POST", "PATCH"]


def test_a_server_that_was_away_gets_everything_once_it_is_back(
    server: ClusterServer,
    sender: EventSender,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "deviceplugin")
    monkeypatch.setattr(event_sender, "_BACKOFF_FIRST_S", 0.05)
    monkeypatch.setattr(event_sender, "BACKOFF_MOST_S", 0.1)
    server.stop()
    sender.put(POD)
    sender.put(NODE)
    wait_until(lambda: "Kubernetes Events do not arrive" in caplog.messages)
    time.sleep(0.3)  # several tries
    assert caplog.messages.count("Kubernetes Events do not arrive") == 1

    server.start()

    wait_until(lambda: len(server.events) == 2)


@pytest.mark.parametrize("status", [429, 500, 503])
def test_an_overloaded_server_is_asked_again(
    server: ClusterServer, sender: EventSender, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setattr(event_sender, "_BACKOFF_FIRST_S", 0.05)
    server.refuse(status)
    sender.put(NODE)
    wait_until(lambda: len(server.calls) >= 2)

    server.faults.clear()

    wait_until(lambda: len(server.events) == 1)


def test_what_the_server_forbids_is_dropped_and_said_once(
    server: ClusterServer, sender: EventSender, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "deviceplugin")
    server.refuse(403)
    for n in range(3):
        sender.put(node_notice(EventReason.ALLOCATION_REFUSED, f"{n}"))
    wait_until(lambda: len(server.calls) == 3)
    time.sleep(0.2)

    assert len(server.calls) == 3, "a refused Event was tried again"
    said = [r.__dict__["fields"]["reason"] for r in caplog.records if "do not arrive" in r.message]
    assert said == ["an Event was refused with status 403: planted"]


def test_a_server_with_a_foreign_certificate_learns_nothing(
    server: ClusterServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "deviceplugin")
    foreign = ClusterServer(tmp_path / "other")
    sender = EventSender(ApiServer("127.0.0.1", server.port, foreign.account), "n1")
    sender.start()
    try:
        sender.put(NODE)
        wait_until(lambda: "Kubernetes Events do not arrive" in caplog.messages)
    finally:
        sender.stop()

    assert server.calls == []


def test_a_queue_that_is_full_keeps_nobody_waiting(server: ClusterServer) -> None:
    sender = EventSender(server.api(), "n1")  # its thread is not started, as if it were stuck
    started = time.monotonic()

    for n in range(20 * event_sender.QUEUE_LENGTH):
        sender.put(node_notice(EventReason.ALLOCATION_REFUSED, f"{n}"))

    assert time.monotonic() - started < PATIENCE_S


def test_without_a_service_account_there_is_no_thread(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "deviceplugin")
    environment = {"KUBERNETES_SERVICE_HOST": "127.0.0.1"}

    assert ApiServer.from_environment({}, tmp_path) is None
    assert ApiServer.from_environment(environment, tmp_path) is None
    handlers = list(logging.getLogger("deviceplugin").handlers)
    event_sender.NodeEvents(None, "n1").stop()

    assert logging.getLogger("deviceplugin").handlers == handlers
    assert caplog.messages == ["no Kubernetes Events: there is no service account here"]


@pytest.fixture
def node(
    server: ClusterServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> Iterator[InProcessNode]:
    caplog.set_level(logging.INFO, "deviceplugin")
    server.be_found(monkeypatch)
    with running_node(monkeypatch) as node:
        yield node


def told(server: ClusterServer, reason: str) -> list[dict[str, Any]]:
    return [e for e in server.events if e["reason"] == reason]


def test_a_refused_start_is_an_event_of_its_pod(server: ClusterServer, node: InProcessNode) -> None:
    pod = node.admit("a", {"vgpu-core": 10}, {"vgpu-memory": 2})
    with pytest.raises(AdmissionFailed):
        node.kubelet.run_options(pod, "c0")

    wait_until(lambda: bool(told(server, "ContainerStartRefused")))
    assert told(server, "ContainerStartRefused")[0]["involvedObject"]["name"] == "a"


def test_admission_does_not_wait_for_an_api_server_that_hangs(
    server: ClusterServer, node: InProcessNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, may_go_on = threading.Event(), threading.Event()

    def hang(self: ApiServer, *_: object) -> None:
        asked.set()
        may_go_on.wait()

    monkeypatch.setattr(ApiServer, "ask", hang)
    try:
        with pytest.raises(AdmissionFailed):
            node.admit("r", {"vgpu-core": 101})
        assert asked.wait(PATIENCE_S)

        node.admit("a", {"vgpu-core": 10, "vgpu-memory": 1})  # or it waits for ever
    finally:
        may_go_on.set()
