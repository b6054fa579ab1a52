"""Agent and kubelet end and start again under running pods."""

from functools import partial

from support.chart_on_cluster import NAMESPACE, all_are_ready, allocatable
from support.cluster_pods import assert_they_run_on, containers, runs, shape, uuid_inside
from support.real_cluster import RealCluster
from support.real_node import MARKS
from support.waiting import wait_until

pytestmark = MARKS


def test_pods_run_on_while_agent_and_kubelet_start_again(cluster: RealCluster) -> None:
    before = containers(cluster)
    cluster.kubectl("delete", "pod", f"--namespace={NAMESPACE}", "--force", "--grace-period=0",
                    "--selector=app.kubernetes.io/component=agent")  # fmt: skip
    cluster.kill("kubelet")
    cluster.start_kubelet()
    wait_until(lambda: all_are_ready(cluster), "the agent is ready again")
    wait_until(lambda: allocatable(cluster).get("nvidia.com/vgpu-core") == 300, "all is offered")
    assert_they_run_on(cluster, before)
    # Nothing is given twice: the GPU of both examples is full, so the next one goes to another.
    cluster.apply(shape("next", 10, 4))
    wait_until(partial(runs, cluster, "next"), "the next one runs")
    assert uuid_inside(cluster, "next") in {each.uuid for each in cluster.machine.devices[2:]}
    cluster.kubectl("delete", "pod", "next")
