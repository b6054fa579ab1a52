"""What the node's metrics say of a container's compute, from its `limits` and `usage`."""

import gzip
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as read_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families
from werkzeug.test import Client

from deviceplugin.http.metric_names import COLLECTED, METRICS
from deviceplugin.http.metrics import AllocateDurations, Metrics, NodeCollector
from deviceplugin.http.pages import pages
from deviceplugin.model.allocations import Allocation
from deviceplugin.policy.devices.layout import Layout
from libvgpu._native import ffi, lib
from libvgpu.arbitration import ArbiterCounters, TenantCounters
from libvgpu.limits import ContainerLimits, DeviceLimit, Family
from libvgpu.region import create
from libvgpu.sharing_mode import Mode

MS = 1_000_000
UUID = "GPU-a"


Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


def make_collector(
    directory: Path,
    limits: ContainerLimits,
    arbiters: Callable[[], Mapping[str, ArbiterCounters]] = dict,
) -> NodeCollector:
    allocation = Allocation("a", limits.family, UUID, 1 << 30)
    service = SimpleNamespace(
        podresources_problem=None,
        allocations=lambda: [(allocation, limits)],
        state=SimpleNamespace(
            layout=Layout("nvidia.com", ()),
            unhealthy={},
            held={},
            left_out={"3": "why"},
            driver_problem="",
        ),
    )
    store = SimpleNamespace(directory=lambda _: directory)
    return NodeCollector(
        service,  # type: ignore[arg-type]
        store,  # type: ignore[arg-type]
        lambda: (True, "0" * 12),
        lambda: {"nvidia.com/vgpu-core": 1.0, "nvidia.com/vgpu-memory": None},
        arbiters=arbiters,
    )


def collect(
    directory: Path,
    limits: ContainerLimits,
    arbiters: Callable[[], Mapping[str, ArbiterCounters]] = dict,
) -> Series:
    """Returns the series of one container whose slice is in ``directory``."""
    collector = make_collector(directory, limits, arbiters)
    families = list(collector.collect())
    assert [f.name for f in families] == [f.name for f in collector.describe()]
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def write_books(directory: Path, books: int) -> None:
    """Writes what one process did into the slice's `usage`."""
    image = bytearray((directory / "usage").read_bytes())
    file = ffi.from_buffer("unsigned char[]", image)
    ffi.cast("struct vgpu_usage_header *", file).hi_slot = 1
    lib.usage_slot(file, 0).gen = 1
    counters = lib.usage_slot_device(file, 0, 0)
    counters.gpu_time_ns, counters.held_ns = 1500 * MS, 250 * MS
    counters.launches, counters.windows, counters.books = 42, 7, books
    for _ in range(10):
        lib.wait_histogram_note(counters, 30 * MS)
    (directory / "usage").write_bytes(image)


@pytest.mark.parametrize(
    ("family", "core_percent", "books", "estimated"),
    [
        (Family.VGPU, 30, 0, "false"),
        (Family.VGPU, 30, 1, "true"),  # a part of it was sampled, before there was a cap
        (Family.VGPU, 100, 0, "true"),
        (Family.MPS, 30, 1, "true"),
    ],
)
def test_the_books_of_a_container_are_series(
    tmp_path: Path, family: Family, core_percent: int, books: int, estimated: str
) -> None:
    limits = ContainerLimits("a", family, (DeviceLimit(UUID, 1, core_percent=core_percent),))
    create(tmp_path / "slice", limits)
    write_books(tmp_path / "slice", books)
    series = collect(tmp_path / "slice", limits)
    labels = {
        "namespace": "",
        "pod": "",
        "container": "",
        "allocation": "a",
        "gpu": UUID,
        "family": family.name.lower(),
    }

    def value(name: str, **more: str) -> float | None:
        return series.get((f"vgpu_container_{name}", frozenset({**labels, **more}.items())))

    assert value("gpu_seconds_total", estimated=estimated) == 1.5
    assert value("throttled_seconds_total") == 0.25
    assert value("launches_total") == 42
    assert value("windows_total") == 7
    assert value("core_used_ratio") == 0  # not sampled yet
    assert value("launch_delay_p99_seconds") == pytest.approx(0.03, rel=0.5)


def test_what_an_arbiter_finds_and_decides_are_series(tmp_path: Path) -> None:
    limits = ContainerLimits("a", Family.VGPU, (DeviceLimit(UUID, 1, core_percent=30),))
    create(tmp_path / "slice", limits)
    tenants = {tmp_path / "slice": TenantCounters(0, 0, True, 0.4)}
    mode_ns = {Mode.NONE: 1, Mode.FREE: 3000 * MS, Mode.SHARED: 500 * MS, Mode.WINDOWS: 0}
    counted = ArbiterCounters(0, 0, 0, 0, Mode.SHARED, mode_ns, tenants)

    series = collect(tmp_path / "slice", limits, lambda: {UUID: counted})
    without = collect(tmp_path / "slice", limits)

    def wanted(series: Series) -> list[float]:
        return [v for (name, _), v in series.items() if name.endswith("core_wanted_ratio")]

    assert wanted(series) == [0.4]
    assert wanted(without) == [0]
    assert {
        dict(labels)["mode"]: value
        for (name, labels), value in series.items()
        if name == "vgpu_gpu_mode_seconds_total" and dict(labels)["gpu"] == UUID
    } == {"free": 3, "shared": 0.5, "windows": 0}


def test_an_unreadable_usage_file_counts_as_zeros(tmp_path: Path) -> None:
    limits = ContainerLimits("a", Family.VGPU, (DeviceLimit(UUID, 1),))
    create(tmp_path / "slice", limits)
    (tmp_path / "slice/usage").write_bytes(b"damaged")

    series = {name: v for (name, _), v in collect(tmp_path / "slice", limits).items()}

    assert series["vgpu_container_usage_readable"] == 0
    assert series["vgpu_container_launches_total"] == 0
    assert series["vgpu_container_launch_delay_p99_seconds"] == 0


def test_every_resource_has_a_series_before_the_kubelet_has_it(tmp_path: Path) -> None:
    limits = ContainerLimits("a", Family.VGPU, (DeviceLimit(UUID, 1),))

    series = collect(tmp_path / "slice", limits)

    def registered(resource: str) -> float | None:
        return series.get(("vgpu_resource_registered", frozenset({("resource", resource)})))

    assert registered("nvidia.com/vgpu-core") == 1
    assert registered("nvidia.com/vgpu-memory") == 0


OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
AWKWARD = 'back\\slash "quoted"\nnext line, ünï'


@pytest.fixture
def scraper(tmp_path: Path) -> Client:
    limits = ContainerLimits("a", Family.VGPU, (DeviceLimit(UUID, 1),))
    durations = AllocateDurations()
    metrics = Metrics(make_collector(tmp_path / "absent", limits), durations)
    durations.prepare("idle")
    for seconds in (0.0005, 0.3, 7.0):
        durations.observe(AWKWARD, seconds)
    return Client(pages({"/metrics": metrics.page}))


def test_a_scraper_gets_the_format_that_it_asks_for(scraper: Client) -> None:
    plain = scraper.get("/metrics")
    asked = scraper.get("/metrics", headers={"Accept": OPENMETRICS, "Accept-Encoding": "gzip"})

    assert plain.content_type == "text/plain; version=0.0.4; charset=utf-8"
    assert str(asked.content_type).startswith("application/openmetrics-text; version=1.0.0")
    assert asked.headers["Content-Encoding"] == "gzip"
    old = {f.name: f.type for f in text_string_to_metric_families(plain.text)}
    text = gzip.decompress(asked.data).decode()
    found = read_openmetrics(text)  # type: ignore[no-untyped-call]
    new = {f.name: f.type for f in found}
    assert old == new
    assert set(old) == {metric.name.removesuffix("_total") for metric in METRICS}


def test_a_probe_of_the_page_gets_its_head_and_a_post_is_refused(scraper: Client) -> None:
    head = scraper.head("/metrics")

    assert (head.status_code, head.data) == (200, b"")
    assert scraper.post("/metrics").status_code == 405


def test_every_allocate_is_counted_in_the_buckets_above_it(scraper: Client) -> None:
    name = "vgpu_allocate_duration_seconds"
    samples = {
        (sample.name, sample.labels["resource"], sample.labels.get("le")): sample.value
        for family in text_string_to_metric_families(scraper.get("/metrics").text)
        for sample in family.samples
        if sample.name.startswith(name)
    }

    assert samples[f"{name}_bucket", AWKWARD, "0.0005"] == 1
    assert samples[f"{name}_bucket", AWKWARD, "0.5"] == 2
    assert samples[f"{name}_bucket", AWKWARD, "+Inf"] == 3
    assert samples[f"{name}_sum", AWKWARD, None] == pytest.approx(7.3005)
    assert samples[f"{name}_count", "idle", None] == 0
    assert {series[0] for series in samples} == {
        f"{name}_{end}" for end in ("bucket", "count", "sum")
    }


def test_the_table_of_metrics_keeps_to_prometheus_rules() -> None:
    assert len({metric.name for metric in METRICS}) == len(METRICS)
    for metric in METRICS:
        assert metric.name.startswith("vgpu_")
        assert metric.name.endswith("_total") == (metric.kind == "counter")
        assert metric.help and not metric.help.endswith(".")
    assert {metric.kind for metric in COLLECTED} == {"gauge", "counter"}
