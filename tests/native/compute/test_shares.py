"""A program has its share, and threads with a stream each have it together.

Their launches overtake each other on the way to the driver, and their kernels overlap on the GPU.
How threads interleave, and when one loses its processor, is decided by a seed
(``support.shim.virtual_time``).
"""

from dataclasses import replace
from pathlib import Path

import pytest

from libvgpu.artifacts import SIM_LIBRARY_DIR
from libvgpu.sim import PROFILES, Machine
from libvgpu.sim.calibration import find_calibration
from support import IS_LONG, Compile
from support.shim.slices import make_slice
from support.shim.virtual_time import Chance, run
from support.sim.driver import driver_version

CORE_PERCENT = 20  # of those with several threads
GIB = 1 << 30
#: With these a fault is seen: an end that is recorded ahead of launches on their way to the driver.
SEEDS = range(1, 9) if IS_LONG else (3, 5, 7)


def share(
    compile_program: Compile,
    folder: Path,
    *numbers: float,
    core_percent: int = CORE_PERCENT,
    chance: Chance | None = None,
) -> float:
    """Returns the percentage that `thread_streams.c` had, in a time of its own."""
    profile = replace(PROFILES["h100-80g"], context_bytes=0, calibration=find_calibration("h100"))
    machine = Machine.create([profile], folder / "machine", driver_version())
    part = make_slice(machine, folder / "slice", memory_bytes=GIB, core_percent=core_percent)
    program = compile_program("thread_streams.c", flags=(f"-L{SIM_LIBRARY_DIR}", "-l:libcuda.so.1"))
    command = [str(program), *map(str, numbers)]
    return float(run(compile_program, part, folder, command, chance))


@pytest.mark.parametrize("launches_a_wait", [0, 8])
@pytest.mark.parametrize("kernel_us", [20, 200, 2000])
@pytest.mark.parametrize("core_percent", [10, 50, 80])
def test_the_share_is_the_cap(
    compile_program: Compile,
    tmp_path: Path,
    core_percent: int,
    kernel_us: int,
    launches_a_wait: int,
) -> None:
    numbers = (kernel_us, 1, 2, launches_a_wait)

    found = share(compile_program, tmp_path, *numbers, core_percent=core_percent)

    assert found == pytest.approx(core_percent, abs=0.1)


@pytest.mark.parametrize("launches_a_wait", [0, 1, 4])
@pytest.mark.parametrize("threads", [4, 16])
@pytest.mark.parametrize("kernel_us", [20, 200, 1000])
def test_threads_with_a_stream_each_get_the_share(
    compile_program: Compile, tmp_path: Path, kernel_us: int, threads: int, launches_a_wait: int
) -> None:
    seconds = {4: 1, 16: 0.6}[threads]

    found = share(compile_program, tmp_path, kernel_us, threads, seconds, launches_a_wait)

    assert found == pytest.approx(CORE_PERCENT, abs=0.5)


@pytest.mark.parametrize(
    ("core_percent", "kernel_us", "threads", "launches_a_wait"),
    [(80, 200, 2, 8), (80, 500, 2, 8), (90, 500, 4, 1), (90, 200, 8, 1), (90, 200, 16, 1)],
)
def test_threads_get_a_high_share_though_their_measurements_overlap(
    compile_program: Compile,
    tmp_path: Path,
    core_percent: int,
    kernel_us: int,
    threads: int,
    launches_a_wait: int,
) -> None:
    numbers = (kernel_us, threads, 2, launches_a_wait)

    found = share(compile_program, tmp_path, *numbers, core_percent=core_percent)

    assert found == pytest.approx(core_percent, abs=0.5)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("threads", "launches_a_wait"), [(4, 4), (16, 0)], ids=["wait", "queue"])
def test_nor_do_they_get_more_on_a_busy_host(
    compile_program: Compile, tmp_path: Path, threads: int, launches_a_wait: int, seed: int
) -> None:
    chance = Chance(seed, one_in=300, late_ns=300_000)

    found = share(compile_program, tmp_path, 20, threads, 0.5, launches_a_wait, chance=chance)

    assert found < CORE_PERCENT + 0.5


def test_a_seed_tells_the_same_each_time(compile_program: Compile, tmp_path: Path) -> None:
    chance = Chance(seed=1, one_in=100, late_ns=100_000)
    found = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        found.append(share(compile_program, tmp_path / name, 20, 8, 0.2, 0, chance=chance))

    assert found[0] == found[1]
