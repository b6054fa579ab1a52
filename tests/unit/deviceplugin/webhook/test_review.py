"""Reviews as the API server sends them, and the answers it gets."""

import base64
import json
from typing import Any

import pytest

from deviceplugin.webhook.pod_patch import PodRules
from deviceplugin.webhook.review import ReviewError, answer

RULES = PodRules(resources=("nvidia.com/gpu",), runtime_class_name="nvidia")


def review(**request: Any) -> dict[str, Any]:
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {"uid": "705ab4f5", "operation": "CREATE", "dryRun": False, **request},
    }


def asking() -> dict[str, Any]:
    container = {"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    return {"metadata": {}, "spec": {"containers": [container]}}


def test_a_patch_comes_back_with_the_uid() -> None:
    said = json.loads(answer(json.dumps(review(object=asking())).encode(), RULES))

    assert (said["apiVersion"], said["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    response = said["response"]
    assert (response["uid"], response["allowed"]) == ("705ab4f5", True)
    assert response["patchType"] == "JSONPatch"
    assert json.loads(base64.b64decode(response["patch"])) == [
        {"op": "add", "path": "/spec/runtimeClassName", "value": "nvidia"}
    ]


@pytest.mark.parametrize(
    "changes", [{"object": {"spec": {"containers": []}}}, {"object": None}, {}]
)
def test_other_pods_are_let_in_without_one(changes: dict[str, Any]) -> None:
    said = json.loads(answer(json.dumps(review(**changes)).encode(), RULES))

    assert said["response"] == {"uid": "705ab4f5", "allowed": True}


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "truncated"),
        (b"[]", "Expected `object`"),
        (b"{}", "missing required field"),
        (json.dumps({**review(), "apiVersion": "admission.k8s.io/v1beta1"}).encode(), "v1beta1"),
        (json.dumps({**review(), "kind": "Pod"}).encode(), "Pod"),
        (b'{"apiVersion": "v1", "kind": "x", "request": {"object": {}}}', "uid"),
        (b"\xff\xfe", "AdmissionReview"),
        (b'{"kind": "\xff"}', "AdmissionReview"),
        (b'{"a": [' + b"{}," * 60_000 + b"{}]}", "120003 values, and at most 100000 are read"),
    ],
)
def test_what_is_no_review_is_named(body: bytes, says: str) -> None:
    with pytest.raises(ReviewError, match=says):
        answer(body, RULES)


@pytest.mark.parametrize("odd", [3, [3], "x", {"a": 1}, None])
@pytest.mark.parametrize("where", ["tolerations", "labels"])
def test_a_pod_that_no_api_server_sends_is_patched_like_others(where: str, odd: object) -> None:
    pod = asking()
    pod["spec" if where == "tolerations" else "metadata"][where] = odd
    rules = PodRules(("nvidia.com/gpu",), ({"key": "nvidia.com/gpu"},), labels={"a": "b"})

    assert "patch" in json.loads(answer(json.dumps(review(object=pod)).encode(), rules))["response"]
