"""A GPU fails under running pods."""

from libvgpu.sim import Machine
from support.chart_on_cluster import allocatable
from support.cluster_pods import assert_they_run_on, containers
from support.real_cluster import RealCluster
from support.real_node import MARKS
from support.waiting import wait_until

FALLEN_OFF_THE_BUS = 79

pytestmark = MARKS


def test_a_fault_withdraws_a_gpu_alone(cluster: RealCluster) -> None:
    machine = Machine.open(cluster.machine.directory)
    machine.raise_event(3, "xid", FALLEN_OFF_THE_BUS)
    wait_until(lambda: allocatable(cluster).get("nvidia.com/vgpu-core") == 200, "one is withdrawn")
    assert any("79" in each for each in cluster.events("GpuUnhealthy"))
    assert_they_run_on(cluster, containers(cluster))
