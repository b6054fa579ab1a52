"""NVML takes a millisecond a call on real drivers: nobody waits for it while no memory moves.

In a time of their own (``support.shim.virtual_time``).
"""

from pathlib import Path

import pytest

from libvgpu.artifacts import SIM_LIBRARY_DIR
from support import Compile
from support.shim.kinds import costly_machine
from support.shim.slices import make_slice
from support.shim.virtual_time import run_program

GIB = 1 << 30
NVML_NS = 1_000_000
NVML_CALLS = ("nvmlInit", "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetComputeRunningProcesses")
MOST_MORE_US = 50
MOST_SPIKE_US = 200
SECONDS = 20


def took_us(
    compile_program: Compile, folder: Path, *arguments: str, gpus: int, is_bare: bool = False
) -> list[float]:
    """Returns what ``nvml_loads.c`` printed, on an H100 whose NVML takes a millisecond a call."""
    folder.mkdir()
    machine = costly_machine(folder, gpus, **dict.fromkeys(NVML_CALLS, NVML_NS))
    part = make_slice(machine, folder / "slice", memory_bytes=4 * GIB, gpus=gpus)
    program = compile_program("nvml_loads.c", flags=(f"-L{SIM_LIBRARY_DIR}", "-l:libcuda.so.1"))
    environment = part.environment(shim=not is_bare)
    printed = run_program(
        compile_program, environment, folder, [str(program), *arguments, str(gpus)]
    )
    return [float(word) for word in printed.split()]


def more_us(compile_program: Compile, folder: Path, *arguments: str, gpus: int) -> list[float]:
    """Returns by how much longer each figure is than without the shim."""
    bare = took_us(compile_program, folder / "bare", *arguments, gpus=gpus, is_bare=True)
    ours = took_us(compile_program, folder / "ours", *arguments, gpus=gpus)
    return [one - other for one, other in zip(ours, bare, strict=True)]


@pytest.mark.parametrize("gpus", [1, 2])
def test_a_load_of_code_that_takes_no_memory_does_not_wait_for_nvml(
    compile_program: Compile, tmp_path: Path, gpus: int
) -> None:
    load_us, wait_us = more_us(compile_program, tmp_path, "loads", "100", gpus=gpus)

    assert load_us <= MOST_MORE_US
    assert wait_us <= MOST_MORE_US


@pytest.mark.parametrize("gpus", [1, 2])
def test_steady_work_does_not_wait_for_nvml(
    compile_program: Compile, tmp_path: Path, gpus: int
) -> None:
    spikes_us = more_us(compile_program, tmp_path, "rounds", str(SECONDS), gpus=gpus)

    assert len(spikes_us) == SECONDS
    assert max(spikes_us) <= MOST_SPIKE_US
