"""Captures in mode GLOBAL next to threads that work on streams of their own.

Such a capture is spoilt by calls of other threads that it forbids. The shim makes such calls inside
of calls that are allowed.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from libvgpu.artifacts import SIM_LIBRARY_DIR
from libvgpu.sim import PROFILES, Machine
from libvgpu.sim.calibration import find_calibration
from support import IS_LONG, Compile
from support.ended import printed
from support.shim.native_programs import shim_files
from support.shim.slices import Slice, make_slice
from support.shim.virtual_time import Chance, run
from support.sim.driver import driver_version

MEMORY_BYTES = 40 << 30
CAPTURES, SEEDS = (20_000, range(1, 5)) if IS_LONG else (8_000, (1, 2))
WITH_LIBCUDA = (f"-L{SIM_LIBRARY_DIR}", "-l:libcuda.so.1")


def slice_of_one_gpu(folder: Path, core_percent: int) -> Slice:
    """Driver calls there take their time, so other threads come in between."""
    profile = replace(PROFILES["h100-80g"], context_bytes=0, calibration=find_calibration("h100"))
    machine = Machine.create([profile], folder / "machine", driver_version())
    return make_slice(
        machine, folder / "slice", memory_bytes=MEMORY_BYTES, core_percent=core_percent
    )


@pytest.mark.parametrize("core_percent", [50, 100])
@pytest.mark.parametrize("calls", ["launches", "frees", "pools", "refusals", "pitches"])
def test_no_call_of_the_shim_spoils_a_capture_that_has_just_begun(
    compile_program: Compile, tmp_path: Path, calls: str, core_percent: int
) -> None:
    part = slice_of_one_gpu(tmp_path, core_percent)
    program = compile_program("capture_unseen.c", *shim_files("elf_lookup"), flags=WITH_LIBCUDA)

    answer = printed(str(program), calls, env=part.environment())

    assert int(answer) == 0


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("work", ["launches", "frees", "default stream"])
def test_captures_hold_what_is_theirs_next_to_another_thread(
    compile_program: Compile, tmp_path: Path, work: str, seed: int
) -> None:
    """When a capture begins between two steps of the other thread is decided by the seed."""
    part = slice_of_one_gpu(tmp_path, core_percent=50)
    program = compile_program("captures_next_to_work.c", flags=WITH_LIBCUDA)
    command = [str(program), str(CAPTURES), work]
    chance = Chance(seed, one_in=3, late_ns=3_000)

    failed, strange = map(int, run(compile_program, part, tmp_path, command, chance).split())

    assert (failed, strange) == (0, 0)
