"""Edits of the chart's ConfigMap, which hold in pods that run; how soon, benchmarks measure."""

from libvgpu import allocation_dirs, region
from support.cluster.chart_on_cluster import config, edit
from support.cluster.pods import assert_they_run_on, containers, total_inside
from support.cluster.real import RealCluster
from support.node.real import MARKS
from support.node.slices import GIB
from support.waiting import wait_until

pytestmark = MARKS


def limit_bytes(cluster: RealCluster, pod: str) -> int:
    """Returns what the `limits` of a pod's container say."""
    (found,) = (
        region.read_limits(each.directory).limits.devices[0].memory_limit_bytes
        for each in allocation_dirs.list_allocations(cluster.inside("/run/vgpu"))
        if each.meta.pod == pod
    )
    return found


def test_an_edit_of_the_config_map_holds_in_running_pods(cluster: RealCluster) -> None:
    before = containers(cluster)
    edit(cluster, config({"match": {"container": "*"}, "memory": "4Gi"}))
    wait_until(lambda: limit_bytes(cluster, "vgpu-30") == 4 * GIB, "the new limit is written")
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
