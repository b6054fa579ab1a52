"""Agent, kubelet and the whole node end and start again."""

from functools import partial

from support.cluster.chart_on_cluster import NAMESPACE, PODS, all_are_ready, allocatable
from support.cluster.pods import (
    assert_they_run_on,
    container_ids,
    containers,
    deployment,
    phase,
    pods_of,
    running_of,
    runs,
    shape,
    total_inside,
    uuid_inside,
)
from support.cluster.real import RealCluster
from support.node.real import MARKS, example
from support.node.slices import GIB
from support.waiting import wait_until
from support.world.given_units import assert_nothing_is_given_twice

CORE, MEMORY = 60, 10

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


def test_a_node_that_was_turned_off_gives_its_pods_their_slices_again(cluster: RealCluster) -> None:
    """The kubelet admits its pods before any plugin can have registered, and refuses them then."""
    cluster.apply(deployment("served", 2, CORE, MEMORY))
    wait_until(lambda: two_of(cluster, set()), "both run")
    before = container_ids(cluster.get("pods", namespace="")["items"])

    cluster.reboot()

    wait_until(lambda: cluster.events("Rebooted"), "the kubelet says that the node was rebooted")
    new = wait_until(lambda: two_of(cluster, before), "both run again")
    for name in new:
        assert total_inside(cluster, name) == MEMORY * GIB
    wait_until(lambda: is_new(cluster, before), "the chart's pods are ready again")
    assert_nothing_is_given_twice(cluster)
    for name in PODS:  # which no controller makes again
        wait_until(partial(has_failed, cluster, name), f"{name} is refused")
        status = cluster.get("pods", name)["status"]
        assert status["reason"] == "UnexpectedAdmissionError", status
        cluster.kubectl("delete", "pod", name)
        cluster.apply(example(name))
    for name in PODS:
        wait_until(partial(runs, cluster, name), f"{name} runs")
    assert_they_run_on(cluster, containers(cluster))
    assert_nothing_is_given_twice(cluster)
    print(f"{len(pods_of(cluster, 'served'))} pods of the Deployment for the two that run")
    cluster.kubectl("delete", "deployment", "served")


def two_of(cluster: RealCluster, before: set[str]) -> list[str]:
    """Returns the Deployment's pods whose containers are ready and new, if they are two."""
    found = running_of(cluster, "served", before)
    return found if len(found) == 2 else []


def is_new(cluster: RealCluster, before: set[str]) -> bool:
    """Returns whether the chart's pods are ready with other containers than before."""
    pods = cluster.get("pods", namespace=NAMESPACE)["items"]
    return all_are_ready(cluster) and not container_ids(pods) & before


def has_failed(cluster: RealCluster, name: str) -> bool:
    return phase(cluster, name) == "Failed"
