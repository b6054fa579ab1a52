"""Calls of NVML that cost what a calibration says, under a lock that memory waits for.

In a time of their own (``support.shim.virtual_time``).
"""

from pathlib import Path

import pytest

from libvgpu.artifacts import SIM_LIBRARY_DIR
from support import Compile
from support.shim.kinds import costly_machine
from support.shim.virtual_time import run_program

MS_US = 1000
LIBRARIES = ("-l:libcuda.so.1", "-l:libnvidia-ml.so.1")


def test_nvml_takes_its_time_and_memory_that_grows_waits_for_it(
    compile_program: Compile, tmp_path: Path
) -> None:
    machine = costly_machine(tmp_path, nvmlDeviceGetComputeRunningProcesses=1_000_000)
    program = compile_program("sim_nvml_cost.c", flags=(f"-L{SIM_LIBRARY_DIR}", *LIBRARIES))

    printed = run_program(compile_program, machine.environment(), tmp_path, [str(program)])

    one_us, two_us, grown_us, within_us = map(float, printed.split())
    assert one_us == pytest.approx(MS_US, abs=10)
    assert two_us == pytest.approx(2 * MS_US, abs=20)
    assert grown_us == pytest.approx(MS_US / 2, abs=100)  # and what a block takes
    assert within_us < 10
