"""Two threads use streams of one green context, which only one of them can have current."""

from dataclasses import replace
from pathlib import Path

import pytest

from libvgpu.artifacts import SIM_LIBRARY_DIR
from libvgpu.sim import PROFILES, Machine
from support import Compile
from support.shim.slices import make_slice
from support.shim.virtual_time import run
from support.sim.driver import driver_version

CORE_PERCENT = 20
GIB = 1 << 30


@pytest.mark.parametrize("kernel_us", [20, 200, 2000])
def test_both_are_capped_and_get_their_memory(
    compile_program: Compile, tmp_path: Path, kernel_us: int
) -> None:
    profile = replace(PROFILES["h100-80g"], context_bytes=0)
    machine = Machine.create([profile], tmp_path / "machine", driver_version())
    part = make_slice(machine, tmp_path / "slice", memory_bytes=GIB, core_percent=CORE_PERCENT)
    program = compile_program("green_threads.c", flags=(f"-L{SIM_LIBRARY_DIR}", "-l:libcuda.so.1"))

    said = run(compile_program, part, tmp_path, [str(program), str(kernel_us), "1"], None)

    assert float(said) == pytest.approx(CORE_PERCENT, abs=0.5)
    assert part.usage().devices[0].used_bytes == 0
