"""Pods that ask for GPUs in every way, and pods that do not, for the policy and the webhook."""

import copy
from typing import Any

from support.cluster import install

#: What marks pods in these tests.
MARK = "nvidia.com/gpu-slice"
#: Arguments of helm: the chart changes pods; by all it knows; on a cluster with the policy.
ON = ["--set", "mutation.enabled=true"]
_EVERY = f"mutation.markerResource={MARK},runtimeClassName=nvidia,mutation.schedulerName=gpus"
ALL = [*ON, "--set", _EVERY]
BETA = install.serves_mutating("v1beta1")

TAINT = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
_OTHER = {"key": "team", "operator": "Equal", "value": "a", "effect": "NoExecute"}


def pod(*limits: str, init: bool = False, metadata: Any = None, **spec: Any) -> dict[str, Any]:
    """A pod whose second container, or init container, has these limits."""
    asking: dict[str, Any] = {"name": "train", "image": "i"}
    if limits:
        asking["resources"] = {"limits": dict.fromkeys(limits, "1")}
    plain = {"name": "proxy", "image": "i"}
    containers = {"containers": [plain], "initContainers": [asking]} if init else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", **(metadata or {})},
        "spec": {**(containers or {"containers": [plain, asking]}), **copy.deepcopy(spec)},
    }


#: Pods that are changed.
ASKING = {
    "core": pod("nvidia.com/vgpu-core"),
    "a share through MPS": pod("nvidia.com/mps-core", "nvidia.com/mps-memory", "cpu"),
    "a whole GPU": pod("nvidia.com/gpu"),
    "a shared GPU": pod("nvidia.com/gpu.shared"),
    "a MIG device": pod("nvidia.com/mig-1g.5gb"),
    "an init container": pod("nvidia.com/vgpu-core", init=True),
    "another toleration": pod("nvidia.com/gpu", tolerations=[_OTHER]),
    "the toleration itself": pod("nvidia.com/gpu", tolerations=[_OTHER, TAINT]),
    "nearly the toleration": pod("nvidia.com/gpu", tolerations=[{**TAINT, "effect": "NoExecute"}]),
    "a toleration of all": pod("nvidia.com/gpu", tolerations=[{"operator": "Exists"}]),
    "a class of its own": pod("nvidia.com/gpu", runtimeClassName="mine"),
    "a scheduler of its own": pod("nvidia.com/gpu", schedulerName="mine"),
    "the default scheduler": pod("nvidia.com/gpu", schedulerName="default-scheduler"),
    "labels": pod("nvidia.com/gpu", metadata={"labels": {"a": "b"}}),
    "the label": pod("nvidia.com/gpu", metadata={"labels": {"nvidia.com/vgpu.slice": "no"}}),
}
#: Pods that are left alone.
OTHERS = {
    "nothing": pod(),
    "a processor": pod("cpu"),
    "another domain": pod("example.com/vgpu-core"),
    "the beginning of a name": pod("nvidia.com/gpus", "nvidia.com/vgpu"),
}


def admitted(text: str, pods: dict[str, Any]) -> dict[str, Any]:
    """Returns the pods as the policies leave them; none may be refused or become invalid."""
    asked = [{"name": n, "namespace": "x", "manifest": pod} for n, pod in pods.items()]
    verdicts = install.judge(text, asked)
    assert [v for v in verdicts if v.invalid or v.refused] == []
    return {v.name: v.admitted for v in verdicts}


def told(pod: Any) -> dict[str, Any]:
    """Returns the parts of a pod that may be changed."""
    spec = pod["spec"]
    return {
        "tolerations": spec.get("tolerations", []),
        "class": spec.get("runtimeClassName"),
        "scheduler": spec["schedulerName"],
        "labels": pod["metadata"].get("labels", {}),
        "limits": [c.get("resources", {}).get("limits", {}) for c in spec["containers"]],
    }
