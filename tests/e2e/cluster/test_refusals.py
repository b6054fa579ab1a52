"""Pods that do not run: no single GPU has room, or a policy or a quota is against it.

And what the webhook adds to those that do.
"""

import json
from functools import partial

import pytest
import yaml

from support.cluster.pods import phase, runs, shape
from support.cluster.real import RealCluster
from support.node.real import MARKS
from support.waiting import wait_until

pytestmark = MARKS


def test_what_no_single_gpu_has_stays_pending_with_the_reason(cluster: RealCluster) -> None:
    """By the sums of its units the node has room for it: 40 and 40 core of two GPUs."""
    for name in ("first", "also"):
        cluster.apply(shape(name, 60, 10))
        wait_until(partial(runs, cluster, name), f"{name} runs")
    cluster.apply(shape("waits", 70, 10))

    def said() -> list[str]:
        told = cluster.events("FailedScheduling")
        return [each for each in told if "40 core free of 70 asked" in each]

    wait_until(said, "the scheduler tells the extender's reason")
    assert phase(cluster, "waits") == "Pending"
    cluster.kubectl("delete", "pod", "first")
    wait_until(partial(runs, cluster, "waits"), "it runs once there is room")
    cluster.kubectl("delete", "pod", "also", "waits")


@pytest.mark.parametrize(
    ("core", "why"), [(150, "150"), (0, "NVIDIA_VISIBLE_DEVICES")], ids=["amount", "variable"]
)
def test_policies_refuse_what_cannot_or_must_not_be(
    cluster: RealCluster, core: int, why: str
) -> None:
    pod = shape("refused", core or 10, 4)
    if not core:
        env = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
        pod["spec"]["containers"][0]["env"] = env
    file = cluster.base / "refused.yaml"
    file.write_text(yaml.safe_dump(pod))
    assert why in cluster.kubectl("apply", "-f", str(file), status=1)


def test_the_webhook_adds_what_a_pod_lacks(cluster: RealCluster) -> None:
    file = cluster.base / "completed.yaml"
    file.write_text(yaml.safe_dump(shape("completed", 10, 4)))

    def tolerated() -> set[str]:
        told = cluster.kubectl("create", "--dry-run=server", "-f", str(file), "-o", "json")
        return {str(each.get("key")) for each in json.loads(told)["spec"]["tolerations"]}

    wait_until(lambda: "nvidia.com/gpu" in tolerated(), "the webhook's toleration")


def test_a_quota_counts_the_resources(cluster: RealCluster) -> None:
    cluster.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "small"}},
        {
            "apiVersion": "v1", "kind": "ResourceQuota",
            "metadata": {"name": "gpus", "namespace": "small"},
            "spec": {"hard": {"requests.nvidia.com/vgpu-core": "20"}},
        },
    )  # fmt: skip
    wait_until(
        lambda: "hard" in cluster.get("resourcequotas", "gpus", "small")["status"], "the quota"
    )
    file = cluster.base / "over.yaml"
    file.write_text(yaml.safe_dump(shape("over", 30, 4)))
    told = cluster.kubectl("apply", "--namespace=small", "-f", str(file), status=1)
    assert "exceeded quota: gpus" in told
