"""What the webhook adds to a pod, and what it leaves alone."""

from typing import Any

import pytest

from deviceplugin.webhook.pod_patch import PodRules, patch
from support.cluster.json_patch import applied

TAINT = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
RULES = PodRules(
    resources=("nvidia.com/vgpu-*", "nvidia.com/gpu"),
    tolerations=(TAINT,),
    runtime_class_name="nvidia",
    scheduler_name="gpus",
    labels={"nvidia.com/vgpu.slice": "true"},
    marker_resource="nvidia.com/gpu-slice",
)


def pod(*resources: str, init: bool = False, **spec: Any) -> dict[str, Any]:
    asking = {"name": "train", "resources": {"limits": dict.fromkeys(resources, "1")}}
    plain = {"name": "proxy"}
    containers = {"containers": [plain], "initContainers": [asking]} if init else None
    return {
        "metadata": {"name": "p"},
        "spec": {**(containers or {"containers": [plain, asking]}), **spec},
    }


@pytest.mark.parametrize("name", ["nvidia.com/vgpu-core", "nvidia.com/vgpu-memory"])
def test_a_pod_that_asks_gets_all_of_it(name: str) -> None:
    asking = pod(name)
    changed = applied(asking, patch(asking, RULES))

    assert changed["spec"]["tolerations"] == [TAINT]
    assert changed["spec"]["runtimeClassName"] == "nvidia"
    assert changed["spec"]["schedulerName"] == "gpus"
    assert changed["metadata"]["labels"] == {"nvidia.com/vgpu.slice": "true"}
    assert changed["spec"]["containers"][1]["resources"]["limits"] == {
        name: "1",
        "nvidia.com/gpu-slice": "0",
    }
    assert changed["spec"]["containers"][0] == {"name": "proxy"}


def test_what_was_patched_needs_no_more_but_the_mark_again() -> None:
    asking = pod("nvidia.com/gpu")
    changed = applied(asking, patch(asking, RULES))

    assert applied(changed, patch(changed, RULES)) == changed
    assert [each["path"].split("/")[-1] for each in patch(changed, RULES)] == [
        "nvidia.com~1gpu-slice"
    ]


@pytest.mark.parametrize(
    "name",
    ["cpu", "nvidia.com/gpu.shared", "example.com/vgpu-core", "nvidia.com/vgpu", "nvidia.com/gpus"],
)
def test_other_resources_are_no_matter(name: str) -> None:
    assert patch(pod(name), RULES) == []


def test_an_init_container_counts_and_is_not_marked() -> None:
    asking = pod("nvidia.com/vgpu-core", init=True)
    changed = applied(asking, patch(asking, RULES))

    assert changed["spec"]["tolerations"] == [TAINT]
    assert changed["spec"]["initContainers"] == asking["spec"]["initContainers"]


def test_what_a_pod_has_stays() -> None:
    other = {"key": "team", "operator": "Equal", "value": "a", "effect": "NoSchedule"}
    own = pod("nvidia.com/gpu", tolerations=[other], runtimeClassName="mine", schedulerName="x")
    own["metadata"]["labels"] = {"nvidia.com/vgpu.slice": "mine", "a": "b"}
    changed = applied(own, patch(own, RULES))

    assert changed["spec"]["tolerations"] == [other, TAINT]
    assert changed["spec"]["runtimeClassName"] == "mine"
    assert changed["spec"]["schedulerName"] == "x"
    assert changed["metadata"]["labels"] == {"nvidia.com/vgpu.slice": "mine", "a": "b"}


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({}, True),
        ({"value": ""}, True),
        ({"operator": "Equal"}, False),
        ({"effect": "NoExecute"}, False),
        ({"key": "x"}, False),
        ({"value": "x"}, False),
        ({"tolerationSeconds": 5}, True),
    ],
)
def test_a_toleration_that_is_there_is_not_added(change: dict[str, Any], same: bool) -> None:
    own = pod("nvidia.com/gpu", tolerations=[{**TAINT, **change}])

    assert len(applied(own, patch(own, RULES))["spec"]["tolerations"]) == (1 if same else 2)


def test_no_operator_is_equal() -> None:
    given = {"key": "a", "value": "b"}
    rules = PodRules(resources=("r",), tolerations=(given,))

    assert patch(pod("r", tolerations=[{**given, "operator": "Equal"}]), rules) == []
    assert len(patch(pod("r", tolerations=[{"key": "a"}]), rules)) == 1


def test_empty_rules_add_nothing() -> None:
    assert patch(pod("nvidia.com/gpu"), PodRules(resources=("nvidia.com/gpu",))) == []


@pytest.mark.parametrize(
    "broken",
    [
        {},
        {"spec": None},
        {"spec": {"containers": None}},
        {"spec": {"containers": "x"}},
        {"spec": {"containers": [None, {"resources": None}, {"resources": {"limits": []}}]}},
    ],
)
def test_what_is_no_pod_is_left_to_the_api_server(broken: dict[str, Any]) -> None:
    assert patch(broken, RULES) == []
