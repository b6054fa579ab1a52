"""What the node's metrics say of a container's compute, from its `limits` and `usage`."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from deviceplugin.http.exposition import render
from deviceplugin.http.metrics import NodeCollector
from deviceplugin.model.allocations import Allocation
from libvgpu._native import ffi, lib
from libvgpu.limits import ContainerLimits, DeviceLimit, Family
from libvgpu.region import create

MS = 1_000_000
UUID = "GPU-a"


Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


def collect(directory: Path, limits: ContainerLimits) -> Series:
    """Returns the series of one container whose slice is in ``directory``, as Prometheus reads."""
    allocation = Allocation("a", limits.family, UUID, 1 << 30)
    service = SimpleNamespace(
        allocations=lambda: [(allocation, limits)], layout=SimpleNamespace(gpus=()), unwell=dict
    )
    store = SimpleNamespace(directory=lambda _: directory)
    collector = NodeCollector(
        service,  # type: ignore[arg-type]
        store,  # type: ignore[arg-type]
        lambda: (True, "0" * 12),
        lambda: {"nvidia.com/vgpu-core": 1.0, "nvidia.com/vgpu-memory": None},
    )
    page = render(collector.collect()).decode()
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(page)
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
    assert value("core_used_ratio") == 0  # there was no look yet
    assert value("launch_delay_p99_seconds") == pytest.approx(0.03, rel=0.5)


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
