"""helm upgrades, rolls back, and in the end takes the chart away: the last file on a cluster."""

from support.chart_on_cluster import NAMESPACE, PODS, RELEASE, all_are_ready, allocatable
from support.cluster_pods import assert_they_run_on, containers, total_inside
from support.install import CHART
from support.node_slices import asked
from support.real_cluster import RealCluster
from support.real_node import MARKS, example
from support.waiting import wait_until

pytestmark = MARKS


def test_upgrade_and_rollback_leave_pods_alone(cluster: RealCluster) -> None:
    before = containers(cluster)
    cluster.helm("upgrade", RELEASE, str(CHART), "--reset-then-reuse-values",
                 "--set=agent.resources.limits.memory=300Mi")  # fmt: skip
    wait_until(lambda: agents_memory(cluster) == {"300Mi"}, "the new agent runs")
    wait_until(lambda: all_are_ready(cluster), "it is ready")
    assert_they_run_on(cluster, before)
    cluster.helm("rollback", RELEASE, "1")
    wait_until(lambda: agents_memory(cluster) == {"256Mi"}, "the old agent runs")
    wait_until(lambda: all_are_ready(cluster), "it is ready")
    assert_they_run_on(cluster, before)


def agents_memory(cluster: RealCluster) -> set[str]:
    pods = cluster.get("pods", f"--namespace={NAMESPACE}",
                       "--selector=app.kubernetes.io/component=agent")["items"]  # fmt: skip
    return {pod["spec"]["containers"][0]["resources"]["limits"]["memory"] for pod in pods}


def test_uninstall_takes_the_agent_away_and_leaves_running_pods_their_slices(
    cluster: RealCluster,
) -> None:
    before = containers(cluster)
    cluster.helm("uninstall", RELEASE)
    wait_until(lambda: not cluster.get("pods", f"--namespace={NAMESPACE}")["items"], "no pod left")
    wait_until(lambda: not any(allocatable(cluster).values()), "nothing is offered any more")
    for name in ("vgpu-30", "vgpu-70"):
        assert total_inside(cluster, name) == asked(example(name))[1]
    assert containers(cluster)["vgpu-30"] == before["vgpu-30"]
    cluster.kubectl("delete", "pod", *PODS)
    clean(cluster)
    assert not any(cluster.inside(each).exists() for each in ("/run/vgpu", "/var/lib/vgpu"))
    assert not cluster.get("leases", f"--namespace={NAMESPACE}")["items"]


def clean(cluster: RealCluster) -> None:
    """Does what docs/operations.md says for after the last container."""
    cluster.kubectl("delete", "lease", f"--namespace={NAMESPACE}",
                    "--selector=app.kubernetes.io/component=vgpu-inventory")  # fmt: skip
    for command in ("umount /run/vgpu", "rm -rf /run/vgpu /var/lib/vgpu"):
        done = cluster.run(*command.split())
        assert done["status"] == 0, done
