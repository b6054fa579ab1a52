"""Metrics of each shared GPU: what it has, and what of it containers were given.

Counted are the units that containers hold or use up, by the GPU in each unit's name.
"""

from collections import Counter
from collections.abc import Container, Iterable, Sequence

from deviceplugin.model.allocations import Allocation
from deviceplugin.model.units import CORE_UNITS_PER_GPU, Half, gpu_of, half_of
from deviceplugin.policy.layout import Layout
from deviceplugin.watch.report import WatchFindings
from libvgpu.limits import ContainerLimits

from .exposition import GaugeMetricFamily

NOTHING_FOUND = WatchFindings()
_LABELS = ("gpu", "index", "family")


def gpu_families(
    layout: Layout,
    allocations: Sequence[tuple[Allocation, ContainerLimits]],
    unwell: Container[str] = (),
    findings: WatchFindings = NOTHING_FOUND,
) -> Iterable[GaugeMetricFamily]:
    """Returns the families, with a series for every GPU of the layout.

    Args:
        unwell: UUIDs of the GPUs that are not well.
        findings: of the watch beside the shim.
    """
    total = GaugeMetricFamily("vgpu_gpu_memory_total_bytes", "Memory of the GPU", labels=_LABELS)
    allocated = GaugeMetricFamily(
        "vgpu_gpu_memory_allocated_bytes", "Memory that containers were given", labels=_LABELS
    )
    core = GaugeMetricFamily(
        "vgpu_gpu_core_allocated_ratio", "Compute that containers were given", labels=_LABELS
    )
    drains = GaugeMetricFamily(
        "vgpu_gpu_draining", "1 if its sharing changes when its slices have ended", labels=_LABELS
    )
    healthy = GaugeMetricFamily("vgpu_gpu_healthy", "1 if the GPU is well", labels=_LABELS)
    beside = GaugeMetricFamily(
        "vgpu_gpu_memory_unaccounted_bytes",
        "Memory that processes hold steadily beside the ledgers of containers",
        labels=_LABELS,
    )
    foreign = GaugeMetricFamily(
        "vgpu_gpu_foreign_processes",
        "Processes on the GPU that belong to no allocation",
        labels=_LABELS,
    )
    charged = Counter[str]()
    for _, limits in allocations:
        charged.update({d.uuid: d.unaccounted_bytes for d in limits.devices})
    foreign_counts, _ = findings.counts()
    units, memory_bytes = _given(allocation for allocation, _ in allocations)
    for shared in layout.gpus:
        uuid = shared.gpu.uuid
        labels = [uuid, str(shared.gpu.index), shared.family.name.lower()]
        total.add_metric(labels, shared.gpu.memory_bytes)
        allocated.add_metric(labels, memory_bytes[uuid])
        core.add_metric(labels, units[uuid] / CORE_UNITS_PER_GPU)
        drains.add_metric(labels, shared.drains)
        healthy.add_metric(labels, uuid not in unwell)
        beside.add_metric(labels, charged[uuid] + findings.outside_bytes(uuid))
        foreign.add_metric(labels, foreign_counts[uuid])
    return total, allocated, core, drains, beside, foreign, healthy


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
