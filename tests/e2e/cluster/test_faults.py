"""A GPU fails under running pods, and comes back.

The gate has test_node_lost_gpu.py on a real kubelet, and unit tests of how long an error counts.
"""

import pytest

from deviceplugin.inventory.health import XID_COUNTS_S
from libvgpu.sim import faults
from support.cluster.chart_on_cluster import allocatable
from support.cluster.pods import assert_they_run_on, containers
from support.cluster.real import RealCluster
from support.node.real import MARKS
from support.waiting import PATIENCE_S, wait_until

#: No pod of the examples is on these.
RESET, FAULTY = 2, 3
WHOLE, WITHOUT_ONE = 300, 200
#: An uncorrectable memory error, after which the GPU answers as before.
ECC_XID = 48

pytestmark = [*MARKS, pytest.mark.long]


def wait_offered(cluster: RealCluster, core: int, patience_s: float = PATIENCE_S) -> None:
    """Waits until the node offers so much core of family vgpu."""
    wait_until(
        lambda: allocatable(cluster).get("nvidia.com/vgpu-core") == core,
        f"{core} core are offered",
        patience_s,
    )


def wait_told(cluster: RealCluster, reason: str, *parts: str) -> None:
    """Waits for an Event of a reason whose message has all parts."""

    def told() -> bool:
        return any(all(part in each for part in parts) for each in cluster.events(reason))

    wait_until(told, f"an Event {reason} with {parts}")


def test_a_gpu_that_was_lost_is_offered_again_once_it_was_reset(cluster: RealCluster) -> None:
    before = containers(cluster)
    uuid = cluster.machine.devices[RESET].uuid
    wait_offered(cluster, WHOLE)

    faults.inject_lost(cluster.machine, RESET)

    wait_offered(cluster, WITHOUT_ONE)
    wait_told(cluster, "GpuUnhealthy", uuid)
    faults.recover(cluster.machine, RESET)
    # Losing it was an XID, too; after a reset that counts no longer.
    wait_offered(cluster, WHOLE, XID_COUNTS_S / 2)
    wait_told(cluster, "GpuHealthy", uuid)
    assert_they_run_on(cluster, before)


def test_an_error_withdraws_a_gpu_alone_for_a_minute(cluster: RealCluster) -> None:
    before = containers(cluster)
    uuid = cluster.machine.devices[FAULTY].uuid
    wait_offered(cluster, WHOLE)

    faults.inject_xid(cluster.machine, FAULTY, ECC_XID)

    wait_offered(cluster, WITHOUT_ONE)
    wait_told(cluster, "GpuUnhealthy", uuid, f"XID {ECC_XID} was reported")
    assert_they_run_on(cluster, before)
    wait_offered(cluster, WHOLE, XID_COUNTS_S + PATIENCE_S)
    wait_told(cluster, "GpuHealthy", uuid)
