"""Dependent launches overlap each other, and a chain of them is charged the time that it takes.

An event between two of them breaks the overlap, so a launch that is measured alone takes longer.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from libvgpu.artifacts import SIM_LIBRARY_DIR
from libvgpu.sim import PROFILES, Machine
from libvgpu.sim.calibration import find_calibration
from support import Compile
from support.shim.slices import make_slice
from support.shim.virtual_time import run
from support.sim.driver import driver_version

GIB = 1 << 30
SECONDS = 0.5
CALIBRATION = find_calibration("h100")
ALL_DEPENDENT, ALL_PLAIN = 0, 1


@dataclass(frozen=True)
class Seen:
    """What a program launched, and the GPU time that it had and was charged."""

    launches: int
    busy_ns: int
    charged_ns: int


def run_chain(
    compile_program: Compile,
    folder: Path,
    core_percent: int,
    kernel_us: int,
    pause_us: int,
    plain_each: int,
) -> Seen:
    """Returns what became of steps of 100 launches, with a pause behind each step."""
    profile = replace(PROFILES["h100-80g"], context_bytes=0, calibration=CALIBRATION)
    machine = Machine.create([profile], folder / "machine", driver_version())
    part = make_slice(machine, folder / "slice", memory_bytes=GIB, core_percent=core_percent)
    program = compile_program(
        "dependent_chain.c", flags=(f"-L{SIM_LIBRARY_DIR}", "-l:libcuda.so.1")
    )
    numbers = (kernel_us, 100, pause_us, SECONDS, plain_each, 0)
    said = run(compile_program, part, folder, [str(program), *map(str, numbers)], None)
    (client,) = machine.books()[0].clients
    return Seen(int(said), client.busy_ns, part.usage().devices[0].gpu_time_ns)


@pytest.mark.parametrize("plain_each", [ALL_DEPENDENT, ALL_PLAIN, 2, 10])
@pytest.mark.parametrize("kernel_us", [5, 10, 20])
def test_a_chain_is_charged_the_time_that_it_takes(
    compile_program: Compile, tmp_path: Path, kernel_us: int, plain_each: int
) -> None:
    seen = run_chain(compile_program, tmp_path, 95, kernel_us, 200, plain_each)

    dependent_part = {ALL_DEPENDENT: 1, ALL_PLAIN: 0, 2: 1 / 2, 10: 9 / 10}[plain_each]
    gained_ns = dependent_part * CALIBRATION.dependent_overlap_ns
    assert seen.busy_ns / seen.launches == pytest.approx(kernel_us * 1000 - gained_ns, rel=0.01)
    assert seen.charged_ns == pytest.approx(seen.busy_ns, rel=0.025)


def test_a_chain_that_needs_less_than_the_cap_is_not_held(
    compile_program: Compile, tmp_path: Path
) -> None:
    """It takes 62 % of the GPU. Measured one by one, its launches would take 88 %."""
    launches = []
    for core_percent in (75, 100):
        folder = tmp_path / str(core_percent)
        folder.mkdir()
        launches.append(
            run_chain(compile_program, folder, core_percent, 5, 200, ALL_DEPENDENT).launches
        )

    assert launches[0] > 0.98 * launches[1]


@pytest.mark.parametrize("core_percent", [20, 50, 80])
def test_a_chain_that_wants_more_has_its_share(
    compile_program: Compile, tmp_path: Path, core_percent: int
) -> None:
    seen = run_chain(compile_program, tmp_path, core_percent, 10, 0, ALL_DEPENDENT)

    assert seen.busy_ns / (SECONDS * 1e7) == pytest.approx(core_percent, abs=0.5)
