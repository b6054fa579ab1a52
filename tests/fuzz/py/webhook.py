"""Reviews as an API server, or anybody else, sends them to the webhook."""

import base64
import json

import msgspec
from msgspec import inspect

from deviceplugin.kube.pod_wire import Pod
from deviceplugin.webhook.pod_patch import PodRules
from deviceplugin.webhook.review import API_VERSION, KIND, ReviewError, answer
from fuzz.shapes import Shapes, words_of

_RESOURCE = "nvidia.com/vgpu-core"
_POD = inspect.type_info(Pod)
_WORDS = [*dict.fromkeys(words_of(_POD)), _RESOURCE, "tolerations", "labels", "key", "operator",
          "effect", "schedulerName", "default-scheduler", "runtimeClassName", "request", "uid",
          "object", "nvidia.com/gpu"]  # fmt: skip
_TOLERATION = {"key": "nvidia.com/gpu", "operator": "Exists"}
_RULES = PodRules((_RESOURCE, "nvidia.com/mig*"), (_TOLERATION,), "nvidia", "s", {"a/b": "c"}, "m")


def one(data: bytes) -> None:
    """Reads one; whoever asks for GPUs gets a patch that JSON can hold."""
    shapes = Shapes(data)
    how = shapes.byte()
    pod = shapes.like(_POD, _WORDS)
    if isinstance(pod, dict) and how & 2:
        spec = {"containers": [{"resources": {"limits": {_RESOURCE: "1"}}}, shapes.json(_WORDS)]}
        pod["spec"] = spec | {shapes.pick(_WORDS): shapes.json(_WORDS) for _ in range(how >> 5)}
    if isinstance(pod, dict) and how & 4:
        pod["metadata"] = {"labels": shapes.json(_WORDS)}
    review = {"apiVersion": API_VERSION, "kind": KIND, "request": {"uid": "u", "object": pod}}
    if how & 8:
        review[shapes.pick(sorted(review))] = shapes.json(_WORDS)
    try:
        said = answer(shapes.rest() if how & 1 else json.dumps(review).encode(), _RULES)
    except ReviewError:
        return
    response = msgspec.json.decode(said)["response"]
    assert response["allowed"] is True
    if "patch" in response:
        msgspec.json.decode(base64.b64decode(response["patch"]))
