"""Edits of the chart's ConfigMap, which hold in pods that run."""

import time
from pathlib import Path

from libvgpu import allocation_dirs, region
from support.chart_on_cluster import NAMESPACE, config, edit
from support.cluster_pods import assert_they_run_on, containers, total_inside
from support.node_slices import GIB
from support.real_cluster import RealCluster
from support.real_node import MARKS
from support.waiting import wait_until

#: Until the kubelet has told its pods of another ConfigMap, which it does once a second here.
CONFIG_MAP_S = 10.0
#: From the file that the agent sees to the limits. The bar is a second, and `python -m benchmarks
#: run reload` measures it.
AGENT_S = 3.0

pytestmark = MARKS


def config_file(cluster: RealCluster) -> Path:
    """Returns the link that the kubelet replaces when the agent's ConfigMap has changed."""
    (agent,) = cluster.get("pods", f"--namespace={NAMESPACE}",
                           "--selector=app.kubernetes.io/component=agent")["items"]  # fmt: skip
    uid = str(agent["metadata"]["uid"])
    volumes = cluster.base / "lib/kubelet/pods" / uid / "volumes/kubernetes.io~configmap"
    return volumes / "config/..data"


def limit_bytes(cluster: RealCluster, pod: str) -> int:
    """Returns what the `limits` of a pod's container say."""
    (found,) = (
        region.read_limits(each.directory).limits.devices[0].memory_limit_bytes
        for each in allocation_dirs.list_allocations(cluster.inside("/run/vgpu"))
        if each.meta.pod == pod
    )
    return found


def test_an_edit_of_the_config_map_holds_in_running_pods(cluster: RealCluster) -> None:
    before, file = containers(cluster), config_file(cluster)
    began = time.time()
    edit(cluster, config({"match": {"container": "*"}, "memory": "4Gi"}))
    wait_until(lambda: limit_bytes(cluster, "vgpu-30") == 4 * GIB, "the new limit is written")
    held, on_node = time.time(), file.lstat().st_mtime
    print(f"kubectl patch to the file on the node {on_node - began:.2f} s (kubectl and kubelet), "
          f"from there to the limits {held - on_node:.2f} s (agent)")  # fmt: skip
    assert began < on_node < held < began + CONFIG_MAP_S
    assert held - on_node < AGENT_S
    assert total_inside(cluster, "vgpu-30") == total_inside(cluster, "mps-half") == 4 * GIB
    edit(cluster, config())
    wait_until(lambda: total_inside(cluster, "vgpu-30") == 16 * GIB, "the old limit holds again")
    wait_until(lambda: total_inside(cluster, "mps-half") == 8 * GIB, "also of the other family")
    assert_they_run_on(cluster, before)


def test_a_bad_edit_changes_nothing_and_raises_an_event(cluster: RealCluster) -> None:
    before = containers(cluster)
    edit(cluster, config({"match": {"container": "*"}, "memory": "much"}))
    (told, *_) = wait_until(lambda: cluster.events("ConfigRejected"), "an Event of the bad config")
    assert "much" in told
    assert_they_run_on(cluster, before)
    edit(cluster, config())
