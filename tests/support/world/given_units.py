"""Whether anything of a GPU is given twice, by two records of a node: the kubelet's and ours."""

import json
from collections import Counter

from benchmarks.chaos.invariants import sums
from libvgpu import allocation_dirs, region
from support.cluster.real import RealCluster


def assert_nothing_is_given_twice(cluster: RealCluster) -> None:
    """No unit is of two pods that live, and no GPU's limits add up to more than there is."""
    twice = {unit: n for unit, n in _units_of_living_pods(cluster).items() if n > 1}
    assert not twice, twice
    allocations = allocation_dirs.list_allocations(cluster.inside("/run/vgpu"))
    limits = [region.read_limits(each.directory).limits for each in allocations]
    sizes_bytes = {device.uuid: device.profile.memory_bytes for device in cluster.machine.devices}
    assert not list(sums(limits, sizes_bytes))


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
