"""The simulated H100 does what the real one did, with today's shim: what fails there fails here."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from benchmarks.figure import judge
from benchmarks.gpu import SimulatedGpu, simulated_gpu
from benchmarks.silicon import memory
from benchmarks.silicon.bench import Bench, Window, open_bench
from benchmarks.silicon.figure import measure_rows
from benchmarks.silicon.rows import ROWS, Row
from libvgpu.sim import PROFILES
from libvgpu.sim.calibration import find_calibration

H100 = replace(PROFILES["h100-80g"], calibration=find_calibration("h100"))
#: Bound by the GPU alone, so that a slow host leaves them as they are.
OF_THE_GPU = [
    row
    for row in ROWS
    if row.name == "30/70 (bare)"
    or [(load.client.kernel_ns, load.client.sync) for load in row.loads] == [(2_000_000, 0)]
]


@pytest.fixture(scope="module")
def gpu() -> Iterator[SimulatedGpu]:
    with simulated_gpu(H100) as made:
        yield made


@pytest.fixture(scope="module")
def bench(gpu: SimulatedGpu) -> Iterator[Bench]:
    with open_bench(gpu, H100.context_bytes) as opened:
        yield opened


def test_memory_is_taken_refused_and_lost_as_on_silicon(gpu: SimulatedGpu) -> None:
    assert judge(memory.measure(gpu, H100.context_bytes)) == []


@pytest.mark.timing
@pytest.mark.parametrize("row", OF_THE_GPU, ids=lambda row: row.name)
def test_tenants_get_what_they_got_on_silicon(bench: Bench, row: Row) -> None:
    assert judge(measure_rows(bench, [row], Window(1.0, 2.0))) == []
