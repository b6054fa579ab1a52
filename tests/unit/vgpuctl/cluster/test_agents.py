"""Which pod is the agent of which node, from what the API server lists."""

import json
from typing import Any

import pytest

from libvgpu.errors import AllocationRefused, UsageError, VgpuError
from vgpuctl.cluster.agents import (
    Agent,
    agent_on,
    agents_of,
    in_order,
    list_path,
    node_of_pod,
    pod_path,
)


def pod(
    name: str,
    node: str = "n1",
    phase: str = "Running",
    made: str = "2026-01-01T00:00:00Z",
    port: str = "pages",
    **more: Any,
) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "ns", "creationTimestamp": made}
    if "ends" in more:
        metadata["deletionTimestamp"] = more["ends"]
    statuses = [{"state": {"waiting": {"reason": more["waits"]}}}] if "waits" in more else []
    ports = [{"containerPort": 1, "name": "other"}, {"containerPort": 9447, "name": port}]
    return {
        "metadata": metadata,
        "spec": {"nodeName": node, "containers": [{"name": "agent", "ports": ports}]},
        "status": {"phase": phase, "containerStatuses": statuses},
    }


def listed(*pods: dict[str, Any], more: str = "") -> bytes:
    return json.dumps({"metadata": {"continue": more}, "items": pods}).encode()


def test_an_agent_is_reached_by_the_number_of_its_port() -> None:
    (agent,), more = agents_of(listed(pod("p"), more="next"))
    pods = "/api/v1/namespaces/ns/pods"
    assert agent == Agent("ns", "p", "n1", 9447)
    assert agent.path("/v1/slices") == (f"{pods}/p/portforward?ports=9447", "/v1/slices")
    assert more == "next"
    (older,), _ = agents_of(listed(pod("p", port="metrics")))
    assert older.path("/v1/slices") == (f"{pods}/p:9447/proxy/v1/slices", "")


@pytest.mark.parametrize(
    ("pods", "chosen"),
    [
        pytest.param([pod("old", ends="2026-01-02T00:00:00Z"), pod("new")], "new", id="ending"),
        pytest.param([pod("dead", phase="Failed"), pod("alive")], "alive", id="failed"),
        pytest.param(
            [pod("second", made="2026-01-03T00:00:00Z"), pod("first")], "first", id="both-run"
        ),
        pytest.param(
            [pod("ends", ends="2026-01-02T00:00:00Z"), pod("comes", phase="Pending")],
            "comes",
            id="next-one-is-coming",
        ),
    ],
)
def test_of_two_on_a_node_the_one_that_stays_counts(
    pods: list[dict[str, Any]], chosen: str
) -> None:
    for order in (pods, pods[::-1]):
        assert [agent.pod for agent in agents_of(listed(*order))[0]] == [chosen]


@pytest.mark.parametrize(
    ("found", "said"),
    [
        pytest.param(pod("p", node=""), "its pod p is on no node yet", id="no-node"),
        pytest.param(pod("p", phase="Pending"), "its agent's pod p is Pending", id="pending"),
        pytest.param(
            pod("p", waits="CrashLoopBackOff"),
            "its agent's pod p waits: CrashLoopBackOff",
            id="waits",
        ),
        pytest.param(
            pod("p", port="web"), "its agent's pod p has no port called pages", id="no-port"
        ),
        pytest.param(pod("p"), "", id="well"),
    ],
)
def test_why_one_cannot_be_asked_is_told(found: dict[str, Any], said: str) -> None:
    (agent,), _ = agents_of(listed(found))
    assert agent.problem == said


def test_nodes_are_in_the_order_of_the_numbers_in_their_names() -> None:
    names = ["gpu-10", "gpu-9", "a", "gpu-1-2", "gpu-1-10"]
    agents = [Agent("ns", "p", name, 1) for name in names]
    assert [agent.node for agent in in_order(agents)] == [
        "a",
        "gpu-1-2",
        "gpu-1-10",
        "gpu-9",
        "gpu-10",
    ]


def test_a_node_without_an_agent_is_told_of_those_that_have_one() -> None:
    agents = [Agent("ns", "p", f"n{number}", 1) for number in range(10)]
    assert agent_on("n3", agents, "ns").node == "n3"
    with pytest.raises(AllocationRefused, match=r"node x has no agent .*: n0, .*, n7 and 2 more$"):
        agent_on("x", agents, "ns")
    with pytest.raises(AllocationRefused, match="nodes that have one: none"):
        agent_on("x", [], "ns")


def test_names_stay_one_part_of_a_path() -> None:
    assert list_path("a/b", "x&y").startswith("/api/v1/namespaces/a%2Fb/pods?labelSelector=app.k")
    assert list_path("ns", "x&y").endswith("&continue=x%26y")
    assert pod_path("team/train", "") == "/api/v1/namespaces/team/pods/train"
    assert pod_path("train", "team?") == "/api/v1/namespaces/team%3F/pods/train"
    for name in ("a/b/c", "/a", "a/", "", "..", "a?b", "team/A"):
        with pytest.raises(UsageError, match="neither NAME nor NAMESPACE/NAME"):
            pod_path(name, "ns")


def test_a_pod_leads_to_its_node() -> None:
    assert node_of_pod(json.dumps(pod("p", "n5")).encode(), "p") == "n5"
    with pytest.raises(VgpuError, match="pod p is on no node yet: it is Pending"):
        node_of_pod(json.dumps(pod("p", "", "Pending")).encode(), "p")


@pytest.mark.parametrize("content", [b"<html>", b"[]", b'{"items": [{}]}'])
def test_what_is_no_answer_of_an_api_server_is_told(content: bytes) -> None:
    with pytest.raises(VgpuError, match="not answer with a list of pods"):
        agents_of(content)
