"""Whether anything of a GPU is given twice, by two records of a node: the kubelet's and ours."""

import json
from collections import Counter
from pathlib import Path

from libvgpu import allocation_dirs, region
from support.cluster.real import RealCluster

_PERCENT = 100


def assert_nothing_is_given_twice(cluster: RealCluster) -> None:
    """No unit is of two pods that live, and no GPU's limits add up to more than there is."""
    twice = {unit: n for unit, n in _units_of_living_pods(cluster).items() if n > 1}
    assert not twice, twice
    core, memory_bytes = _sums_of_limits(cluster.inside("/run/vgpu"))
    sizes_bytes = {device.uuid: device.profile.memory_bytes for device in cluster.machine.devices}
    assert all(percent <= _PERCENT for percent in core.values()), core
    assert all(total <= sizes_bytes[uuid] for uuid, total in memory_bytes.items()), memory_bytes


def _units_of_living_pods(cluster: RealCluster) -> Counter[tuple[str, str]]:
    """Returns how many pods that live have each unit, by resource and unit."""
    living = {
        pod["metadata"]["uid"]
        for pod in cluster.get("pods", namespace="")["items"]
        if pod["status"]["phase"] in ("Pending", "Running")
    }
    record = cluster.base / "lib/kubelet/device-plugins/kubelet_internal_checkpoint"
    given: Counter[tuple[str, str]] = Counter()
    for entry in json.loads(record.read_text())["Data"]["PodDeviceEntries"] or ():
        if entry["PodUID"] in living:
            for units in entry["DeviceIDs"].values():  # by NUMA node
                given.update((entry["ResourceName"], unit) for unit in units)
    return given


def _sums_of_limits(run_dir: Path) -> tuple[Counter[str], Counter[str]]:
    """Returns percent and bytes that containers may use of each GPU."""
    core: Counter[str] = Counter()
    memory_bytes: Counter[str] = Counter()
    for allocation in allocation_dirs.list_allocations(run_dir):
        for device in region.read_limits(allocation.directory).limits.devices:
            core[device.uuid] += device.core_percent
            memory_bytes[device.uuid] += device.memory_limit_bytes
    return core, memory_bytes
