"""The chart on a cluster: what the tests install, change and ask of it."""

import base64
import json
from pathlib import Path
from typing import Any

import yaml

from support.cluster.install import CHART
from support.cluster.real import RealCluster
from support.node.real import EXAMPLES
from support.waiting import wait_until

GPUS = ("a100-80g",) * 5
NAMESPACE, RELEASE = "vgpu-system", "vgpu"
WORKLOADS = EXAMPLES / "workloads"
#: Examples that run all the time. The config below shares GPU 0 through MPS, 1 to 3 in time, and
#: the last one in replicas.
PODS = ("vgpu-30", "vgpu-70", "mps-half")
_EXTENDER_ADDRESS = "10.96.0.44"  # as in deploy/examples/scheduler
#: What the chart runs, in the image of `make image`.
_PARTS = {"agent", "mps", "scheduler", "webhook"}


def config(*rules: dict[str, Any]) -> dict[str, Any]:
    """The examples' config, with more GPUs of family vgpu, and that of time-slicing."""
    found = dict(yaml.safe_load((EXAMPLES / "config.yaml").read_text()))
    for entry in found["sharing"]["fractional"]:
        if entry["family"] == "vgpu":
            entry["devices"] = [1, 2, 3]
    time_slicing = yaml.safe_load((WORKLOADS / "time-slicing/config.yaml").read_text())
    found["sharing"] |= time_slicing["sharing"]
    return found | {"limits": list(rules)}


def values_file(cluster: RealCluster) -> Path:
    """Returns the values with which the chart is installed."""
    return cluster.base / "values.yaml"


def install(cluster: RealCluster) -> None:
    """Installs the chart, and has the scheduler ask its extender."""
    values = values_file(cluster)
    values.write_text(
        yaml.safe_dump(
            {
                "config": yaml.safe_dump(config()),
                "scheduler": {"enabled": True, "replicas": 1, "clusterIP": _EXTENDER_ADDRESS},
                "mutation": {"enabled": True, "mode": "webhook", "webhook": {"replicas": 1}},
            }
        )
    )
    cluster.helm("install", RELEASE, str(CHART), f"--values={values}")
    wait_until(lambda: all_are_ready(cluster), "the chart's pods are ready")
    _ask_the_extender(cluster)


def _ask_the_extender(cluster: RealCluster) -> None:
    """Starts the scheduler again with the configuration of deploy/examples/scheduler."""
    files: dict[str, str] = {}
    for name, key, field in (
        ("tls", "ca.crt", "caFile"),
        ("client-tls", "tls.crt", "certFile"),
        ("client-tls", "tls.key", "keyFile"),
    ):
        secret = cluster.get("secrets", f"{RELEASE}-scheduler-{name}", NAMESPACE)
        file = cluster.base / f"extender-{key}"
        file.write_bytes(base64.b64decode(secret["data"][key]))
        files[field] = str(file)
    text = (EXAMPLES / "scheduler/kube-scheduler/scheduler-config.yaml").read_text()
    extenders = yaml.safe_load(text)["extenders"]
    for each in extenders:
        each["tlsConfig"] |= files
    cluster.stop("kube-scheduler")
    cluster.start_scheduler({"extenders": extenders})


def pods_of_part(cluster: RealCluster, part: str) -> list[dict[str, Any]]:
    """Returns the pods of one of the chart's parts."""
    selector = f"app.kubernetes.io/component={part}"
    return list(cluster.get("pods", namespace=NAMESPACE, selector=selector)["items"])


def all_are_ready(cluster: RealCluster) -> bool:
    """Returns whether all pods of the chart are there and ready."""
    pods = cluster.get("pods", namespace=NAMESPACE)["items"]
    parts = {pod["metadata"]["labels"]["app.kubernetes.io/component"] for pod in pods}
    return parts == _PARTS and all(
        any(
            c["type"] == "Ready" and c["status"] == "True"
            for c in pod["status"].get("conditions", ())
        )
        and not pod["metadata"].get("deletionTimestamp")
        for pod in pods
    )


def allocatable(cluster: RealCluster) -> dict[str, int]:
    """Returns what the node offers of our resources."""
    node = cluster.get("nodes", "node")["status"]["allocatable"]
    return {name: int(n) for name, n in node.items() if name.startswith("nvidia.com/")}


def edit(cluster: RealCluster, content: dict[str, Any]) -> None:
    """Puts another config into the chart's ConfigMap."""
    patch = json.dumps({"data": {"config.yaml": yaml.safe_dump(content)}})
    cluster.kubectl(
        "patch",
        "configmap",
        "vgpu-config",
        f"--namespace={NAMESPACE}",
        "--type=merge",
        f"--patch={patch}",
    )
