"""What the chart offers, and the pods of deploy/examples with their slices."""

import json

from support.cluster.chart_on_cluster import PODS, allocatable
from support.cluster.real import RealCluster
from support.node.real import MARKS, example
from support.node.slices import OUT_OF_MEMORY, asked
from support.waiting import wait_until

#: How far a share of 3 s may be off on a machine that does other things; benchmarks measure it.
SHARE_POINTS = 5

pytestmark = MARKS


def test_the_node_offers_what_its_gpus_hold(cluster: RealCluster) -> None:
    offered = {
        "nvidia.com/mps-core": 100, "nvidia.com/mps-memory": 80,
        "nvidia.com/gpu.shared": 4, "nvidia.com/vgpu-core": 300, "nvidia.com/vgpu-memory": 240,
    }  # fmt: skip
    wait_until(lambda: allocatable(cluster) == offered, "what the node offers")


def test_the_examples_run_together_with_their_slices(cluster: RealCluster) -> None:
    for name in PODS:
        percent, limit_bytes = asked(example(name))
        view, memory = cluster.wait_said(name, "view"), cluster.wait_said(name, "memory")
        assert view["cuda_total_bytes"] == view["nvml_total_bytes"] == limit_bytes
        assert memory["refusal_code"] == OUT_OF_MEMORY
        assert memory["one_again_after_free"]
        share = cluster.wait_said(name, "compute")["share_percent"]
        assert 0 < share <= percent + SHARE_POINTS, name


def test_kubectl_vgpu_shows_the_pods_of_the_node(cluster: RealCluster) -> None:
    shown = cluster.vgpu("ps", "-o", "json")
    assert shown["status"] == 0, shown
    rows = {row["pod"]: row for row in json.loads(shown["out"])}
    assert {row["node"] for row in rows.values()} == {"node"}
    for name in PODS:
        assert rows[name]["memory_limit_bytes"] == asked(example(name))[1]
        assert rows[name]["state"] == "running"
    described = cluster.vgpu("describe", f"default/{PODS[0]}")
    assert described["status"] == 0 and "from request" in described["out"], described
    assert cluster.vgpu("doctor", "--problems")["status"] == 0


def test_pods_of_one_gpu_are_packed_there(cluster: RealCluster) -> None:
    """30 and 70 % fill one GPU, so the other one is whole."""
    assert {cluster.wait_said(name, "view")["uuid"] for name in ("vgpu-30", "vgpu-70")} == {
        cluster.machine.devices[1].uuid
    }
