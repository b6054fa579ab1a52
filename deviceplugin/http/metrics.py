"""Prometheus metrics of the node, gathered when they are scraped.

Per container from its `limits` in force and its `usage` file (hostile: libvgpu.region bounds every
value; an unreadable file counts as zeros and shows in ``vgpu_container_usage_readable``); per GPU
from the allocations; of the agent itself. Every GPU and container has its series from the
beginning, at zero. GPU seconds carry ``estimated="true"`` where nothing forces them to be measured
(family mps and containers without a cap); their launches and present share are estimates, too.
"""

from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus

from deviceplugin.core.service import SliceService
from deviceplugin.model.allocations import Allocation
from deviceplugin.mps.state_files import GpuMps
from deviceplugin.store.slice_files import SliceStore
from deviceplugin.watch.report import WatchFindings
from libvgpu import region
from libvgpu.errors import RegionError
from libvgpu.limits import WHOLE_CORE_PERCENT, ContainerLimits, DeviceLimit
from libvgpu.usage import is_measured

from .exposition import (
    CONTENT_TYPE,
    CounterMetricFamily,
    Family,
    GaugeMetricFamily,
    Histogram,
    render,
)
from .gpu_metrics import gpu_families
from .message import Request, Response
from .mps_metrics import mps_families

_CONTAINER_LABELS = ("namespace", "pod", "container", "allocation", "gpu", "family")
_ALLOCATE_BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0)

#: name, kind, help; filled by `_container_values` in this order, the last two by the watch.
_CONTAINER_METRICS = (
    ("vgpu_container_memory_used_bytes", "gauge", "GPU memory that the container holds"),
    ("vgpu_container_memory_limit_bytes", "gauge", "GPU memory that the container may hold"),
    ("vgpu_container_memory_peak_bytes", "gauge", "Most GPU memory that it ever held"),
    ("vgpu_container_core_limit_ratio", "gauge", "Part of the GPU's compute it may use"),
    ("vgpu_container_throttled_seconds_total", "counter", "Time its launches were held back"),
    ("vgpu_container_launches_total", "counter", "Kernels and graphs that it launched"),
    ("vgpu_container_windows_total", "counter", "Turns on a contended GPU in which it launched"),
    ("vgpu_container_core_used_ratio", "gauge", "Part of the GPU's time that it had lately"),
    (
        "vgpu_container_launch_delay_p99_seconds",
        "gauge",
        "What 99 of 100 held launches waited at most, to within a factor of two",
    ),
    ("vgpu_container_memory_refused_total", "counter", "Allocations that were refused"),
    ("vgpu_container_usage_readable", "gauge", "1 if its usage file is whole"),
    (
        "vgpu_container_memory_unaccounted_bytes",
        "gauge",
        "GPU memory that it holds steadily beside its ledger, charged to it",
    ),
    ("vgpu_container_bypassing_processes", "gauge", "Its processes that its ledger does not know"),
)


class NodeCollector:
    """Turns the service's state into metric families at every scrape."""

    def __init__(
        self,
        service: SliceService,
        store: SliceStore,
        config: Callable[[], tuple[bool, str]],
        registrations: Callable[[], Mapping[str, float | None]],
        findings: Callable[[], WatchFindings] = WatchFindings,
        mps: Callable[[], Mapping[str, GpuMps]] = dict,
    ) -> None:
        """Makes a collector.

        Args:
            config: returns whether the config file is good, and the digest of the one in force.
            registrations: returns each resource with when it was registered, None where it is not.
            findings: returns what the watch beside the shim has found.
            mps: returns how MPS is on each GPU that is under it.
        """
        self._service, self._store, self._config = service, store, config
        self._registrations, self._findings = registrations, findings
        self._mps = mps

    def collect(self) -> Iterable[Family]:
        """Yields every family."""
        allocations, findings = self._service.allocations(), self._findings()
        yield from self._containers(allocations, findings)
        yield from gpu_families(self._service.layout, allocations, self._service.unwell(), findings)
        yield from mps_families(self._mps())
        good, digest = self._config()
        yield GaugeMetricFamily(
            "vgpu_config_reload_success",
            "1 if the config file's present content is in force",
            value=float(good),
        )
        yield GaugeMetricFamily(
            "vgpu_config_hash",
            "Hash of the config in force, as a number",
            value=int(digest[:12], 16),
        )
        yield GaugeMetricFamily(
            "vgpu_watch_working",
            "1 if the watch beside the shim sees the GPUs' processes",
            value=float(not findings.problem),
        )
        yield CounterMetricFamily(
            "vgpu_watch_ended_total",
            "Processes that were ended since they bypassed their slice",
            value=findings.ended,
        )
        registered = GaugeMetricFamily(
            "vgpu_resource_registered", "1 if the kubelet has the resource", labels=("resource",)
        )
        for resource, since in self._registrations().items():
            registered.add_metric([resource], since is not None)
        yield registered

    def _containers(
        self, allocations: list[tuple[Allocation, ContainerLimits]], findings: WatchFindings
    ) -> Iterable[Family]:
        _, bypassing = findings.counts()
        families: list[Family] = [
            (CounterMetricFamily if kind == "counter" else GaugeMetricFamily)(
                name, text, labels=_CONTAINER_LABELS
            )
            for name, kind, text in _CONTAINER_METRICS
        ]
        seconds = CounterMetricFamily(
            "vgpu_container_gpu_seconds_total",
            "GPU time that the container used",
            labels=(*_CONTAINER_LABELS, "estimated"),
        )
        for allocation, limits in allocations:
            usage = self._usage(allocation)
            for index, limit in enumerate(limits.devices):
                labels = _labels(allocation, limit)
                values, gpu_seconds = _container_values(limit, usage, index)
                more = limit.unaccounted_bytes, bypassing[allocation.allocation_id, limit.uuid]
                for family, value in zip(families, (*values, *more), strict=True):
                    family.add_metric(labels, value)
                seconds.add_metric([*labels, _estimated(limits, limit, usage, index)], gpu_seconds)
        yield from families
        yield seconds

    def _usage(self, allocation: Allocation) -> region.ContainerUsage | None:
        try:
            return region.read_usage(self._store.directory(allocation.allocation_id))
        except RegionError:
            return None


def _labels(allocation: Allocation, limit: DeviceLimit) -> list[str]:
    owner = allocation.owner
    names = (owner.namespace, owner.pod, owner.container) if owner else ("", "", "")
    return [*names, allocation.allocation_id, limit.uuid, allocation.family.name.lower()]


def _estimated(
    limits: ContainerLimits, limit: DeviceLimit, usage: region.ContainerUsage | None, index: int
) -> str:
    sampled = usage is not None and index < len(usage.devices) and usage.devices[index].is_estimated
    return "true" if sampled or not is_measured(limits.family, limit) else "false"


def _container_values(
    limit: DeviceLimit, usage: region.ContainerUsage | None, index: int
) -> tuple[tuple[float, ...], float]:
    device = usage.devices[index] if usage and index < len(usage.devices) else None
    values = (
        device.used_bytes if device else 0,
        limit.memory_limit_bytes,
        device.peak_bytes if device else 0,
        limit.core_percent / WHOLE_CORE_PERCENT,
        device.held_ns / 1e9 if device else 0,
        device.launches if device else 0,
        device.windows if device else 0,
        device.share_percent / WHOLE_CORE_PERCENT if device else 0,
        (device.delay_p99_ns or 0) / 1e9 if device else 0,
        device.refused_count if device else 0,
        1 if usage else 0,
    )
    return values, device.gpu_time_ns / 1e9 if device else 0


class Metrics:
    """The page ``/metrics``."""

    def __init__(self, collector: NodeCollector) -> None:
        self._collector = collector
        self._allocate = Histogram(
            "vgpu_allocate_duration_seconds",
            "How long Allocate took",
            label="resource",
            buckets=_ALLOCATE_BUCKETS,
        )

    def observe_allocate(self, resource: str, seconds: float) -> None:
        """Counts one Allocate."""
        self._allocate.observe(resource, seconds)

    def prepare(self, resources: Iterable[str]) -> None:
        """Shows the series of these resources at zero."""
        for resource in resources:
            self._allocate.prepare(resource)

    def page(self, request: Request) -> Response:
        """Answers a scrape."""
        body = render([*self._collector.collect(), self._allocate])
        return Response(HTTPStatus.OK, body, CONTENT_TYPE)
