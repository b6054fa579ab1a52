"""Pods of tests on a cluster: making them, and whether they have what they asked for."""

from collections.abc import Collection, Iterable
from typing import Any

from support.cluster.chart_on_cluster import PODS
from support.cluster.real import RealCluster
from support.node.real import example
from support.node.slices import asked

TOTAL_INSIDE = """
import pynvml
pynvml.nvmlInit()
print(pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(0)).total)
"""
UUID_INSIDE = """
import pynvml
pynvml.nvmlInit()
print(pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(0)))
"""


def shape(name: str, core: int, memory: int) -> dict[str, Any]:
    """Returns a pod that asks for a slice and does nothing.

    Args:
        core: percent of a GPU.
        memory: units of 1 GiB.
    """
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [{
                "name": "c", "image": "vgpu-sample-client:0.1", "imagePullPolicy": "Never",
                "command": ["python3", "-c", "import time; time.sleep(1000)"],
                "resources": {"limits": {
                    "nvidia.com/vgpu-core": core, "nvidia.com/vgpu-memory": memory,
                }},
            }],
        },
    }  # fmt: skip


def phase(cluster: RealCluster, name: str) -> str:
    """Returns a pod's phase."""
    return str(cluster.get("pods", name)["status"]["phase"])


def runs(cluster: RealCluster, name: str) -> bool:
    """Returns whether a pod runs."""
    return phase(cluster, name) == "Running"


def total_inside(cluster: RealCluster, name: str, namespace: str = "default") -> int:
    """Returns the memory in bytes that NVML shows in a pod."""
    return int(_inside(cluster, name, namespace, TOTAL_INSIDE))


def uuid_inside(cluster: RealCluster, name: str, namespace: str = "default") -> str:
    """Returns the GPU that NVML shows in a pod."""
    return _inside(cluster, name, namespace, UUID_INSIDE).strip()


def _inside(cluster: RealCluster, name: str, namespace: str, program: str) -> str:
    return cluster.kubectl("exec", f"--namespace={namespace}", name, "--", "python3", "-c", program)


def containers(cluster: RealCluster) -> dict[str, str]:
    """Returns the container of each example, which another start would change."""
    return {
        name: cluster.get("pods", name)["status"]["containerStatuses"][0]["containerID"]
        for name in PODS
    }


def containers_of(cluster: RealCluster, name: str) -> set[str]:
    """Returns the containers of a pod, which another start would change."""
    return container_ids([cluster.get("pods", name)])


def assert_they_run_on(cluster: RealCluster, before: dict[str, str]) -> None:
    """The examples' containers are those of before, and still have their slices."""
    assert containers(cluster) == before
    for name in PODS:
        assert total_inside(cluster, name) == asked(example(name))[1]


def deployment(name: str, replicas: int, core: int, memory: int) -> dict[str, Any]:
    """Returns a Deployment of pods of that `shape`, whose label ``app`` is its name."""
    spec = shape(name, core, memory)["spec"]
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


def pods_of(cluster: RealCluster, name: str) -> list[dict[str, Any]]:
    """Returns the pods of a `deployment`, those that failed among them."""
    return list(cluster.get("pods", selector=f"app={name}")["items"])


def running_of(cluster: RealCluster, name: str, before: Collection[str] = frozenset()) -> list[str]:
    """Returns the names of the pods of a `deployment` that are ready.

    Args:
        before: containers that count no longer, whatever the API server still says of them.
    """
    return [
        pod["metadata"]["name"]
        for pod in pods_of(cluster, name)
        if not pod["metadata"].get("deletionTimestamp")
        and all(each["ready"] for each in _statuses(pod) or [{"ready": False}])
        and not container_ids([pod]) & set(before)
    ]


def container_ids(pods: Iterable[dict[str, Any]]) -> set[str]:
    """Returns the containers of pods, which another start changes."""
    return {each.get("containerID", "") for pod in pods for each in _statuses(pod)} - {""}


def _statuses(pod: dict[str, Any]) -> list[dict[str, Any]]:
    return pod["status"].get("containerStatuses") or []
