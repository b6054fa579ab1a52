"""Prometheus metrics of the node, gathered when they are scraped.

Per container from its `limits` in force and its `usage` file (hostile: libvgpu.region bounds every
value; an unreadable file counts as zeros and shows in ``vgpu_container_usage_readable``); per GPU
from the allocations; of the agent itself. Every GPU and container has its series from the
beginning, at zero. GPU seconds carry ``estimated="true"`` where nothing forces them to be measured
(family mps and containers without a cap); their launches and present share are estimates, too.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

from prometheus_client import CollectorRegistry, Histogram, disable_created_metrics, make_wsgi_app
from werkzeug.wrappers import Request, Response

from deviceplugin.core.service import SliceService
from deviceplugin.model.allocations import Allocation
from deviceplugin.mps.state_files import GpuMps
from deviceplugin.store.slice_files import SliceStore
from deviceplugin.watch.report import WatchFindings
from libvgpu import region
from libvgpu.arbitration import ArbiterCounters
from libvgpu.errors import RegionError
from libvgpu.limits import WHOLE_CORE_PERCENT, ContainerLimits, DeviceLimit
from libvgpu.usage import is_measured

from . import metric_names as names
from .device_metrics import device_families
from .gpu_metrics import gpu_families, mode_family
from .metric_names import Family, MetricName
from .mps_metrics import mps_families

_ALLOCATE_BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0)


class NodeCollector:
    """Turns the service's state into metric families at every scrape."""

    def __init__(  # noqa: PLR0913 - a source for each family of metrics
        self,
        service: SliceService,
        store: SliceStore,
        config: Callable[[], tuple[bool, str]],
        registrations: Callable[[], Mapping[str, float | None]],
        findings: Callable[[], WatchFindings] = WatchFindings,
        mps: Callable[[], Mapping[str, GpuMps]] = dict,
        arbiters: Callable[[], Mapping[str, ArbiterCounters]] = dict,
        publish_problem: Callable[[], str] = str,
        pods_problem: Callable[[], str] = str,
        unheard: Callable[[], Collection[str]] = tuple,
        restored: Callable[[], Mapping[str, int]] = dict,
    ) -> None:
        """Makes a collector.

        Args:
            config: returns whether the config file is good, and the digest of the one in force.
            registrations: returns each resource with when it was registered, None where it is not.
            findings: returns what the memory watch has found.
            mps: returns the state of MPS on each GPU that it serves.
            arbiters: returns what the arbiter of each GPU has counted, where it runs here.
            publish_problem: returns why schedulers are not told what the node has; empty: they are.
            pods_problem: returns why the pods of this node are not followed; empty: they are.
            unheard: returns the resources that the kubelet took and does not listen to.
            restored: returns how often `usage` was given its size again, by allocation.
        """
        self._restored = restored
        self._publish_problem, self._pods_problem = publish_problem, pods_problem
        self._service, self._store, self._config = service, store, config
        self._unheard = unheard
        self._registrations, self._findings = registrations, findings
        self._mps, self._arbiters = mps, arbiters

    def collect(self) -> Iterable[Family]:
        """Yields every family."""
        allocations, findings = self._service.allocations(), self._findings()
        arbiters = self._arbiters()
        yield from self._containers(allocations, findings, arbiters)
        state = self._service.state
        yield from gpu_families(state.layout, allocations, state.unhealthy, findings)
        yield _single(names.GPUS_LEFT_OUT, len(state.left_out))
        yield _single(names.DRIVER_UP, not state.driver_problem)
        yield mode_family(arbiters)
        yield from mps_families(self._mps())
        good, digest = self._config()
        yield _single(names.CONFIG_RELOAD_SUCCESS, good)
        yield _single(names.CONFIG_HASH, int(digest[:12], 16))
        yield _single(names.PODRESOURCES_UP, not self._service.podresources_problem)
        yield _single(names.INVENTORY_PUBLISHED, not self._publish_problem())
        yield _single(names.PODS_FOLLOWED, not self._pods_problem())
        yield _single(names.WATCH_UP, not findings.problem)
        yield _single(names.WATCH_PROCESSES_KILLED, findings.ended)
        registered, unheard = names.RESOURCE_REGISTERED.family(), self._unheard()
        for resource, since in self._registrations().items():
            registered.add_metric([resource], since is not None and resource not in unheard)
        yield registered
        yield from device_families(state.layout, state.held)

    def describe(self) -> Iterable[Family]:
        """Returns every family without series; the library knows the names by them."""
        return [metric.family() for metric in names.COLLECTED]

    def _containers(
        self,
        allocations: list[tuple[Allocation, ContainerLimits]],
        findings: WatchFindings,
        arbiters: Mapping[str, ArbiterCounters],
    ) -> Iterable[Family]:
        _, bypassing = findings.counts()
        restored, damaged = self._restored(), {each.allocation_id for each in findings.damaged}
        forged = {(each.allocation_id, each.gpu) for each in findings.forged}
        families = [metric.family() for metric in names.CONTAINER]
        seconds = names.CONTAINER_GPU_SECONDS.family()
        for allocation, limits in allocations:
            directory = self._store.directory(allocation.allocation_id)
            usage = _usage(directory)
            for index, limit in enumerate(limits.devices):
                labels = _labels(allocation, limit)
                wanted_part = _wanted_part(arbiters.get(limit.uuid), directory)
                values, gpu_seconds = _container_values(limit, usage, index, wanted_part)
                more = (
                    limit.unaccounted_bytes,
                    bypassing[allocation.allocation_id, limit.uuid],
                    allocation.allocation_id in damaged,
                    (allocation.allocation_id, limit.uuid) in forged,
                    restored.get(allocation.allocation_id, 0),
                )
                for family, value in zip(families, (*values, *more), strict=True):
                    family.add_metric(labels, value)
                seconds.add_metric([*labels, _estimated(limits, limit, usage, index)], gpu_seconds)
        yield from families
        yield seconds


def _usage(directory: Path) -> region.ContainerUsage | None:
    try:
        return region.read_usage(directory)
    except RegionError:
        return None


def _wanted_part(arbiter: ArbiterCounters | None, directory: Path) -> float:
    tenant = arbiter.tenants.get(directory) if arbiter else None
    return tenant.wanted_part if tenant else 0


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
    limit: DeviceLimit, usage: region.ContainerUsage | None, index: int, wanted_part: float
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
        wanted_part,
        (device.delay_p99_ns or 0) / 1e9 if device else 0,
        device.refused_count if device else 0,
        1 if usage else 0,
    )
    return values, device.gpu_time_ns / 1e9 if device else 0


def _single(metric: MetricName, value: float) -> Family:
    family = metric.family()
    family.add_metric([], value)
    return family


class AllocateDurations:
    """How long Allocate took, for each resource."""

    def __init__(self) -> None:
        """Has measured nothing yet."""
        # Else every histogram has a series more that says when the agent started.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.histogram = Histogram(
            names.ALLOCATE_DURATION.name,
            names.ALLOCATE_DURATION.help,
            names.ALLOCATE_DURATION.labels,
            registry=None,
            buckets=_ALLOCATE_BUCKETS,
        )

    def observe(self, resource: str, seconds: float) -> None:
        """Counts one Allocate."""
        self.histogram.labels(resource).observe(seconds)

    def prepare(self, resource: str) -> None:
        """Shows the series of a resource at zero."""
        self.histogram.labels(resource)


class Metrics:
    """The page ``/metrics``, in Prometheus' text format or OpenMetrics, as the scraper asks."""

    def __init__(self, collector: NodeCollector, durations: AllocateDurations) -> None:
        """Makes the page; in a registry of its own, since the library's has the process's too."""
        registry = CollectorRegistry()
        registry.register(collector)
        registry.register(durations.histogram)
        self._app = make_wsgi_app(registry)

    def page(self, request: Request) -> Response:
        """Answers a scrape."""
        # The library refuses HEAD; its answer's body is left out where the response is sent.
        return Response.from_app(self._app, {**request.environ, "REQUEST_METHOD": "GET"})
