"""helm upgrades, rolls back, and in the end takes the chart away: the last file on a cluster.

A node without slices is cleaned in the long form; in the gate test_clean_host.py cleans directories
and test_chart_guards.py holds the hook's rights and mounts against what it does.
"""

from functools import partial

import pytest

from support.cluster.chart_on_cluster import (
    NAMESPACE,
    PODS,
    RELEASE,
    all_are_ready,
    allocatable,
    pods_of_part,
    values_file,
)
from support.cluster.install import CHART
from support.cluster.pods import assert_they_run_on, containers, runs, shape, total_inside
from support.cluster.real import RealCluster
from support.node.real import MARKS, example
from support.node.slices import asked
from support.waiting import wait_until

pytestmark = MARKS


def test_upgrade_and_rollback_leave_pods_alone(cluster: RealCluster) -> None:
    before = containers(cluster)
    cluster.helm(
        "upgrade",
        RELEASE,
        str(CHART),
        "--reset-then-reuse-values",
        "--set=agent.resources.limits.memory=300Mi",
    )
    wait_until(lambda: agents_memory(cluster) == {"300Mi"}, "the new agent runs")
    wait_until(lambda: all_are_ready(cluster), "it is ready")
    assert_they_run_on(cluster, before)
    cluster.helm("rollback", RELEASE, "1")
    wait_until(lambda: agents_memory(cluster) == {"256Mi"}, "the old agent runs")
    wait_until(lambda: all_are_ready(cluster), "it is ready")
    assert_they_run_on(cluster, before)


def agents_memory(cluster: RealCluster) -> set[str]:
    pods = pods_of_part(cluster, "agent")
    return {pod["spec"]["containers"][0]["resources"]["limits"]["memory"] for pod in pods}


def test_uninstall_takes_the_agent_away_and_leaves_running_pods_their_slices(
    cluster: RealCluster,
) -> None:
    before = containers(cluster)
    # After all that was done here: no process of a slice was ever taken for a stranger's.
    assert not cluster.events("ForeignGpuProcess")
    cluster.helm(
        "upgrade", RELEASE, str(CHART), "--reset-then-reuse-values", "--set=cleanHosts.enabled=true"
    )
    cluster.helm("uninstall", RELEASE)
    wait_until(lambda: not cluster.get("pods", namespace=NAMESPACE)["items"], "no pod left")
    wait_until(lambda: not any(allocatable(cluster).values()), "nothing is offered any more")
    for name in ("vgpu-30", "vgpu-70"):
        assert total_inside(cluster, name) == asked(example(name))[1]
    assert containers(cluster)["vgpu-30"] == before["vgpu-30"]
    (told,) = cluster.events("HostNotCleaned")
    assert any(f"the pod default/{name} has a slice there" in told for name in PODS)
    cluster.kubectl("delete", "pod", *PODS)
    clean(cluster)
    assert_nothing_is_left(cluster)


@pytest.mark.long
def test_uninstall_removes_what_is_on_a_node_where_no_pod_has_a_slice(cluster: RealCluster) -> None:
    cluster.helm(
        "install",
        RELEASE,
        str(CHART),
        f"--values={values_file(cluster)}",
        "--set=cleanHosts.enabled=true",
    )
    wait_until(lambda: all_are_ready(cluster), "the chart's pods are ready again")
    wait_until(lambda: allocatable(cluster).get("nvidia.com/vgpu-core"), "it offers its GPUs again")
    brief = shape("brief", 10, 4)
    brief["spec"]["nodeName"] = "node"  # the extender has another certificate now
    cluster.apply(brief)
    wait_until(partial(runs, cluster, "brief"), "a pod has a slice")
    # Marked for its end, it is waited for.
    cluster.kubectl("delete", "pod", "brief", "--wait=false")
    cluster.helm("uninstall", RELEASE)
    assert_nothing_is_left(cluster)
    assert len(cluster.events("HostNotCleaned")) == 1  # the one of before
    rights = names(cluster, "clusterroles") + names(cluster, "clusterrolebindings")
    assert not [name for name in rights if name.startswith(f"{RELEASE}-")]


def names(cluster: RealCluster, kind: str) -> list[str]:
    return [each["metadata"]["name"] for each in cluster.get(kind)["items"]]


def assert_nothing_is_left(cluster: RealCluster) -> None:
    assert not any(cluster.inside(each).exists() for each in ("/run/vgpu", "/var/lib/vgpu"))
    wait_until(lambda: NAMESPACE not in names(cluster, "namespaces"), "the namespace has gone")


def clean(cluster: RealCluster) -> None:
    """Does what docs/operations.md says for after the last container."""
    cluster.kubectl(
        "delete",
        "lease",
        f"--namespace={NAMESPACE}",
        "--selector=app.kubernetes.io/component=vgpu-inventory",
    )
    for command in ("umount --recursive /run/vgpu", "rm -rf /run/vgpu /var/lib/vgpu"):
        done = cluster.run(*command.split())
        assert done["status"] == 0, done
