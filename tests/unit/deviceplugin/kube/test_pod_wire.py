"""What is read of a Pod."""

import json
from typing import Any

import msgspec
import pytest

from deviceplugin.kube.pod_wire import Pod, pod_request, trimmed
from deviceplugin.model.chosen_gpus import ChosenGpus
from deviceplugin.model.pod_requests import ContainerKind, ContainerRequest, PodRequest
from libvgpu.errors import VgpuError

CHOSEN = ChosenGpus("n1", {"main": ("GPU-1",)})


def container(name: str, *, restart: str | None = None, **limits: Any) -> dict[str, Any]:
    amounts = {f"nvidia.com/{key.replace('_', '-')}": each for key, each in limits.items()}
    found = {
        "name": name,
        "image": "x",
        "resources": {"limits": {"cpu": "1", "memory": "1Gi", **amounts}, "requests": {"cpu": 1}},
    }
    return found | ({"restartPolicy": restart} if restart else {})


def pod(**more: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "name": "p",
            "namespace": "team",
            "uid": "u1",
            "creationTimestamp": "2026-01-02T03:04:05Z",
            "annotations": {
                "nvidia.com/vgpu.gpus": CHOSEN.encoded(),
                "nvidia.com/vgpu.node-policy": "spread",
                "nvidia.company/vgpu.gpus": "x",
                "kubectl.kubernetes.io/last-applied-configuration": "long",
            },
            "labels": {"a": "b"},
        },
        "spec": {
            "nodeName": "n1",
            "priority": 7,
            "schedulerName": "default-scheduler",
            "initContainers": [
                container("first", vgpu_core="10", vgpu_memory="2"),
                container("side", restart="Always", gpu="1"),
                container("none"),
            ],
            "containers": [container("main", vgpu_core="1k", vgpu_memory="2Ki", gpu="0")],
        },
        "status": {"phase": "Running"},
    } | more


def decoded(value: dict[str, Any]) -> Pod:
    return msgspec.json.decode(json.dumps(value), type=Pod)


def test_a_pod_is_told_by_what_its_containers_ask_for_in_their_order() -> None:
    assert pod_request(decoded(pod()), "nvidia.com") == PodRequest(
        uid="u1",
        namespace="team",
        name="p",
        containers=(
            ContainerRequest(
                "first",
                {"nvidia.com/vgpu-core": 10, "nvidia.com/vgpu-memory": 2},
                ContainerKind.INIT,
            ),
            ContainerRequest("side", {"nvidia.com/gpu": 1}, ContainerKind.SIDECAR),
            ContainerRequest(
                "main", {"nvidia.com/vgpu-core": 1000, "nvidia.com/vgpu-memory": 2048}
            ),
        ),
        created_at=1767323045.0,
        node="n1",
        priority=7,
        annotations={
            "nvidia.com/vgpu.gpus": CHOSEN.encoded(),
            "nvidia.com/vgpu.node-policy": "spread",
        },
        chosen=CHOSEN,
    )


def test_another_domain_sees_nothing_of_it() -> None:
    assert pod_request(decoded(pod()), "example.com") is None
    assert trimmed(decoded(pod()), "example.com") is None
    assert pod_request(decoded(pod()), "nvidia.co") is None


def test_trimming_changes_nothing_of_what_is_asked_for() -> None:
    found = trimmed(decoded(pod()), "nvidia.com")

    assert found is not None
    assert pod_request(found, "nvidia.com") == pod_request(decoded(pod()), "nvidia.com")
    assert len(found.spec.init_containers or ()) == 2
    assert "long" not in msgspec.json.encode(found).decode()


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_ended_says_so(phase: str) -> None:
    found = pod_request(decoded(pod(status={"phase": phase})), "nvidia.com")

    assert found is not None and found.is_ended


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-01T00:00:00Z", "9999-99-99"])
def test_a_pod_without_a_time_is_of_no_time(text: str) -> None:
    value = pod()
    value["metadata"]["creationTimestamp"] = text
    found = pod_request(decoded(value), "nvidia.com")

    assert found is not None and found.created_at == 0


def test_fields_may_be_missing_or_null() -> None:
    spec = {"containers": [container("main", vgpu_core=5)], "initContainers": None}
    found = pod_request(decoded({"metadata": {"name": "p"}, "spec": spec}), "nvidia.com")
    assert found is not None
    assert (found.uid, found.node, found.priority, found.chosen) == ("", "", 0, None)
    for each in ({"containers": None}, {"containers": [{"name": "a", "resources": None}]}, {}):
        assert pod_request(decoded({"metadata": {}, "spec": each}), "nvidia.com") is None


def test_an_amount_that_is_none_names_the_container() -> None:
    value = pod()
    value["spec"]["containers"] = [container("main", vgpu_core="many")]

    with pytest.raises(VgpuError, match=r"team/p, container main asks for .*-core: 'm"):
        pod_request(decoded(value), "nvidia.com")
