"""Prometheus metrics of the node, gathered when they are scraped.

Per container from its `limits` in force and its `usage` file (hostile: libvgpu.region bounds every
value; an unreadable file counts as zeros and shows in ``vgpu_container_usage_readable``); per GPU
from the holdings; of the agent itself. Every GPU and container has its series from the beginning,
at zero. GPU seconds carry ``estimated="true"`` where nothing forces them to be measured (family mps
and containers without a cap).
"""

import threading
from collections.abc import Callable, Iterable
from typing import Any

from prometheus_client import CollectorRegistry, Histogram, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from libvgpu import region
from libvgpu.errors import RegionError, UsageError
from libvgpu.limits import WHOLE_CORE_PERCENT, ComputeMode, ContainerLimits, DeviceLimit

from .holdings import Holding
from .layout import Layout
from .service import SliceService
from .slices import SliceStore
from .units import CORE_UNITS_PER_GPU

_CONTAINER_LABELS = ("namespace", "pod", "container", "allocation", "gpu", "family")
_GPU_LABELS = ("gpu", "index", "family")
_ALLOCATE_BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0)

#: name, kind, help; filled by `_container_values` in this order.
_CONTAINER_METRICS = (
    ("vgpu_container_memory_used_bytes", "gauge", "GPU memory that the container holds"),
    ("vgpu_container_memory_limit_bytes", "gauge", "GPU memory that the container may hold"),
    ("vgpu_container_memory_peak_bytes", "gauge", "Most GPU memory that it ever held"),
    ("vgpu_container_core_limit_ratio", "gauge", "Part of the GPU's compute it may use"),
    ("vgpu_container_throttled_seconds_total", "counter", "Time its launches were held back"),
    ("vgpu_container_memory_refused_total", "counter", "Allocations that were refused"),
    ("vgpu_container_usage_readable", "gauge", "1 if its usage file is whole"),
)


class NodeCollector:
    """Turns the service's state into metric families at every scrape."""

    def __init__(
        self, service: SliceService, store: SliceStore, config: Callable[[], tuple[bool, str]]
    ) -> None:
        """Makes a collector.

        Args:
            config: returns whether the config file is good, and the digest of the one in force.
        """
        self._service, self._store, self._config = service, store, config

    def collect(self) -> Iterable[Any]:
        """Yields every family."""
        holdings = self._service.holdings()
        yield from self._containers(holdings)
        yield from _gpus(self._service.layout, holdings)
        good, digest = self._config()
        yield GaugeMetricFamily(
            "vgpu_config_reload_success", "1 if the config file's present content is in force",
            value=float(good),
        )  # fmt: skip
        yield GaugeMetricFamily(
            "vgpu_config_hash", "Hash of the config in force, as a number",
            value=int(digest[:12], 16),
        )  # fmt: skip

    def _containers(self, holdings: list[tuple[Holding, ContainerLimits]]) -> Iterable[Any]:
        families: list[Any] = [
            (CounterMetricFamily if kind == "counter" else GaugeMetricFamily)(
                name, text, labels=_CONTAINER_LABELS
            )
            for name, kind, text in _CONTAINER_METRICS
        ]
        seconds = CounterMetricFamily(
            "vgpu_container_gpu_seconds_total", "GPU time that the container used",
            labels=(*_CONTAINER_LABELS, "estimated"),
        )  # fmt: skip
        for holding, limits in holdings:
            usage = self._usage(holding)
            for index, limit in enumerate(limits.devices):
                labels = _labels(holding, limit)
                values, gpu_seconds = _container_values(limit, usage, index)
                for family, value in zip(families, values, strict=True):
                    family.add_metric(labels, value)
                capped = limit.compute_mode is not ComputeMode.OFF
                measured = capped and limit.core_percent < WHOLE_CORE_PERCENT
                seconds.add_metric([*labels, "false" if measured else "true"], gpu_seconds)
        yield from families
        yield seconds

    def _usage(self, holding: Holding) -> region.ContainerUsage | None:
        try:
            return region.read_usage(self._store.directory(holding.allocation_id))
        except RegionError:
            return None


def _labels(holding: Holding, limit: DeviceLimit) -> list[str]:
    owner = holding.owner
    names = (owner.namespace, owner.pod, owner.container) if owner else ("", "", "")
    return [*names, holding.allocation_id, limit.uuid, holding.family.name.lower()]


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
        device.refused_count if device else 0,
        1 if usage else 0,
    )
    return values, device.gpu_time_ns / 1e9 if device else 0


def _gpus(layout: Layout, holdings: list[tuple[Holding, ContainerLimits]]) -> Iterable[Any]:
    total = GaugeMetricFamily(
        "vgpu_gpu_memory_total_bytes", "Memory of the GPU", labels=_GPU_LABELS
    )
    allocated = GaugeMetricFamily(
        "vgpu_gpu_memory_allocated_bytes", "Memory that containers were given", labels=_GPU_LABELS
    )
    core = GaugeMetricFamily(
        "vgpu_gpu_core_allocated_ratio", "Compute that containers were given", labels=_GPU_LABELS
    )
    for shared in layout.gpus:
        labels = [shared.gpu.uuid, str(shared.gpu.index), shared.family.name.lower()]
        here = [holding for holding, _ in holdings if holding.uuid == shared.gpu.uuid]
        total.add_metric(labels, shared.gpu.memory_bytes)
        allocated.add_metric(labels, sum(h.memory_bytes for h in here))
        core.add_metric(labels, sum(len(h.core) for h in here) / CORE_UNITS_PER_GPU)
    yield from (total, allocated, core)


class MetricsServer:
    """``/metrics`` on an address of ours."""

    def __init__(self, collector: NodeCollector) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(collector)
        self._allocate = Histogram(
            "vgpu_allocate_duration_seconds", "How long Allocate took",
            labelnames=("resource",), buckets=_ALLOCATE_BUCKETS, registry=self._registry,
        )  # fmt: skip
        self._server: Any = None
        self._thread: threading.Thread | None = None

    def observe_allocate(self, resource: str, seconds: float) -> None:
        """Counts one Allocate."""
        self._allocate.labels(resource).observe(seconds)

    def prepare(self, resources: Iterable[str]) -> None:
        """Shows the series of these resources at zero."""
        for resource in resources:
            self._allocate.labels(resource)

    def start(self, address: str) -> str:
        """Serves on ``address`` and returns it with the port that was taken.

        Raises:
            UsageError: the address is not HOST:PORT or cannot be bound.
        """
        host, port = split_address(address)
        try:
            self._server, self._thread = start_http_server(port, host, self._registry)
        except OSError as error:
            raise UsageError(
                f"metrics address {address!r} cannot be bound: {error.strerror}"
            ) from None
        return f"{host}:{self._server.server_port}"

    def stop(self) -> None:
        """Ends the server."""
        if self._server is not None and self._thread is not None:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()
            self._server = None


def split_address(address: str) -> tuple[str, int]:
    """Returns host and port of ``HOST:PORT``; no host means all, port 0 means any.

    Raises:
        UsageError: it is something else.
    """
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise UsageError(
            f"metrics address {address!r} is not HOST:PORT, for example :9446 or 127.0.0.1:0"
        )
    return host.strip("[]") or "0.0.0.0", int(port)
