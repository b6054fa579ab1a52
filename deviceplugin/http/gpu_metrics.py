"""Metrics of each shared GPU: what it has, and what of it containers were given.

Counted are the units that containers hold or use up, by the GPU in each unit's name.
"""

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence

from deviceplugin.model.allocations import Allocation
from deviceplugin.model.units import CORE_UNITS_PER_GPU, Half, gpu_of, half_of
from deviceplugin.policy.devices.device_resources import is_well
from deviceplugin.policy.devices.layout import Layout
from deviceplugin.watch.report import WatchFindings
from libvgpu.arbitration import ArbiterCounters
from libvgpu.limits import ContainerLimits
from libvgpu.sharing_mode import Mode

from .metric_names import GPU, GPU_MODE_SECONDS, Family

NOTHING_FOUND = WatchFindings()
#: What stands for a family where a GPU is given whole, or in replicas by time-slicing.
WHOLE = "whole"


def gpu_families(
    layout: Layout,
    allocations: Sequence[tuple[Allocation, ContainerLimits]],
    unhealthy: Container[str] = (),
    findings: WatchFindings = NOTHING_FOUND,
) -> Iterable[Family]:
    """Returns the families, with a series for every GPU of the layout.

    Of one that is given whole only what it is itself: what containers do there nobody counts.

    Args:
        unhealthy: UUIDs of the GPUs that are unhealthy.
        findings: what the memory watch has found.
    """
    families = [metric.family() for metric in GPU]
    charged = Counter[str]()
    for _, limits in allocations:
        charged.update({d.uuid: d.unaccounted_bytes for d in limits.devices})
    foreign_counts, _ = findings.counts()
    units, memory_bytes = _given(allocation for allocation, _ in allocations)
    for shared in layout.gpus:
        uuid = shared.gpu.uuid
        labels = [uuid, str(shared.gpu.index), shared.family.name.lower()]
        values = (
            shared.gpu.memory_bytes,
            memory_bytes[uuid],
            units[uuid] / CORE_UNITS_PER_GPU,
            shared.drains,
            charged[uuid] + findings.outside_bytes(uuid),
            foreign_counts[uuid],
            is_well(shared.gpu, unhealthy),
        )
        for family, value in zip(families, values, strict=True):
            family.add_metric(labels, value)
    total, *_, healthy = families
    for resource in layout.resources:
        for device in resource.devices:
            if layout.find(device.gpu.uuid) is None:
                labels = [device.gpu.uuid, str(device.gpu.index), WHOLE]
                if device.gpu.memory_bytes:
                    total.add_metric(labels, device.gpu.memory_bytes)
                healthy.add_metric(labels, is_well(device.gpu, unhealthy))
    return families


def mode_family(arbiters: Mapping[str, ArbiterCounters]) -> Family:
    """Returns for how long each GPU was shared in each mode by the arbiters that run here."""
    family = GPU_MODE_SECONDS.family()
    for uuid, counted in arbiters.items():
        for mode, passed_ns in counted.mode_ns.items():
            if mode is not Mode.NONE:  # an arbiter's first moment
                family.add_metric([uuid, mode.value], passed_ns / 1e9)
    return family


def _given(
    allocations: Iterable[Allocation],
) -> tuple[Counter[str], Counter[str]]:
    """Returns the core units and the bytes given, by GPU."""
    units: Counter[str] = Counter()
    memory_bytes: Counter[str] = Counter()
    # A unit counts once: an init container's is a later container's, too.
    taken = {
        unit: allocation.memory_unit_bytes
        for allocation in allocations
        for unit in allocation.units
    }
    for unit, unit_bytes in taken.items():
        if half_of(unit) is Half.CORE:
            units[gpu_of(unit)] += 1
        else:
            memory_bytes[gpu_of(unit)] += unit_bytes
    return units, memory_bytes
