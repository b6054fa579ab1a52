"""Edits of the chart's ConfigMap, which hold in pods that run."""

import time

from support.chart_on_cluster import config, edit
from support.cluster_pods import assert_they_run_on, containers, total_inside
from support.node_slices import GIB
from support.real_cluster import RealCluster
from support.real_node import MARKS
from support.waiting import wait_until

#: Until the kubelet has told its pods of another ConfigMap, which it does once a second here.
CONFIG_MAP_S = 10.0

pytestmark = MARKS


def test_an_edit_of_the_config_map_holds_in_running_pods(cluster: RealCluster) -> None:
    before = containers(cluster)
    edit(cluster, config({"match": {"container": "*"}, "memory": "4Gi"}))
    began = time.monotonic()
    wait_until(lambda: total_inside(cluster, "vgpu-30") == 4 * GIB, "the new limit holds")
    took = time.monotonic() - began
    print(f"from kubectl apply to the running pod {took:.1f} s, of which our part is below 1 s")
    assert took < CONFIG_MAP_S
    assert total_inside(cluster, "mps-half") == 4 * GIB
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
