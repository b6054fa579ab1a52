"""What a GPU's metrics count as given: units held, units a default uses up, and raises."""

from dataclasses import replace

from deviceplugin.http.gpu_metrics import gpu_families
from deviceplugin.model.allocations import Allocation
from deviceplugin.watch.report import SeenProcess, WatchFindings
from libvgpu.limits import ContainerLimits, DeviceLimit, Family
from support.node.units import GIB, layout_of
from support.node.units import holding as slice_of

LAYOUT = layout_of(16, 16)


def units(letter: str, numbers: range) -> tuple[str, ...]:
    return tuple(f"GPU-0::{letter}{n}" for n in numbers)


def given(*held: tuple[Allocation, DeviceLimit]) -> dict[tuple[str, str], float]:
    allocations = [
        (allocation, ContainerLimits(allocation.allocation_id, allocation.family, (limit,)))
        for allocation, limit in held
    ]
    return {
        (sample.name, sample.labels["gpu"]): sample.value
        for family in gpu_families(LAYOUT, allocations)
        for sample in family.samples
    }


def test_every_gpu_has_its_series_at_zero() -> None:
    found = given()

    for uuid in ("GPU-0", "GPU-1"):
        assert found["vgpu_gpu_memory_total_bytes", uuid] == 16 * GIB
        assert found["vgpu_gpu_memory_allocated_bytes", uuid] == 0
        assert found["vgpu_gpu_core_allocated_ratio", uuid] == 0
        assert found["vgpu_gpu_healthy", uuid] == 1
        assert found["vgpu_gpu_memory_unaccounted_bytes", uuid] == 0
        assert found["vgpu_gpu_foreign_processes", uuid] == 0


def test_an_unhealthy_gpu_shows() -> None:
    (*_, healthy) = gpu_families(LAYOUT, [], {"GPU-1"})

    assert [(s.labels["gpu"], s.value) for s in healthy.samples] == [("GPU-0", 1), ("GPU-1", 0)]


def test_a_gpu_that_drains_shows() -> None:
    waits = replace(LAYOUT, gpus=(LAYOUT.gpus[0], replace(LAYOUT.gpus[1], drains=True)))
    found = {family.name: family for family in gpu_families(waits, [])}

    samples = found["vgpu_gpu_draining"].samples
    assert [(s.labels["gpu"], s.value) for s in samples] == [("GPU-0", 0), ("GPU-1", 1)]


def test_units_defaults_and_raises_are_added_up_and_lowering_takes_nothing_off() -> None:
    full = DeviceLimit("GPU-0", 11 * GIB, core_percent=45)
    lowered = DeviceLimit("GPU-0", 1 * GIB, core_percent=5)
    raised = (*units("c", range(40, 45)), *units("m", range(8, 11)))
    found = given(
        (slice_of("a", range(40), range(8), raised=raised), full),
        (slice_of("b", range(50, 60), range(0), implicit_units=units("m", range(14, 16))), lowered),
    )

    assert found["vgpu_gpu_memory_allocated_bytes", "GPU-0"] == (8 + 3 + 2) * GIB
    assert found["vgpu_gpu_core_allocated_ratio", "GPU-0"] == 0.55
    assert found["vgpu_gpu_memory_allocated_bytes", "GPU-1"] == 0


def test_units_of_an_init_container_and_its_successor_count_once() -> None:
    limit = DeviceLimit("GPU-0", 8 * GIB, core_percent=40)
    found = given(
        (slice_of("init", range(40), range(8)), limit),
        (slice_of("main", range(10, 30), range(4)), limit),
    )

    assert found["vgpu_gpu_memory_allocated_bytes", "GPU-0"] == 8 * GIB
    assert found["vgpu_gpu_core_allocated_ratio", "GPU-0"] == 0.4


def test_unaccounted_memory_of_containers_and_of_foreign_processes_is_added_up() -> None:
    unaccounted = DeviceLimit("GPU-0", 4 * GIB, unaccounted_bytes=GIB)
    allocations = [
        (slice_of(name, range(0), range(0)), ContainerLimits(name, Family.VGPU, (unaccounted,)))
        for name in "ab"
    ]
    foreign = SeenProcess("GPU-0", 7, 1, "x", 3 * GIB)

    found = {
        (sample.name, sample.labels["gpu"]): sample.value
        for family in gpu_families(LAYOUT, allocations, (), WatchFindings(foreign=(foreign,)))
        for sample in family.samples
    }

    assert found["vgpu_gpu_memory_unaccounted_bytes", "GPU-0"] == 5 * GIB
    assert found["vgpu_gpu_memory_unaccounted_bytes", "GPU-1"] == 0
    assert found["vgpu_gpu_foreign_processes", "GPU-0"] == 1
