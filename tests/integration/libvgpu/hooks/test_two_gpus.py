"""Two GPUs in one slice: each one's memory and launches are its own."""

from dataclasses import replace
from pathlib import Path

import pytest

from libvgpu.artifacts import SIM_LIBRARY_DIR
from libvgpu.limits import ContainerLimits, DeviceLimit, Family
from libvgpu.region import create
from libvgpu.sim import PROFILES, Machine
from support import Compile
from support.ended import printed
from support.lines import next_line
from support.shim.slices import Slice, SliceOf
from support.sim.driver import driver_version

GIB = 1 << 30
MIB = 1 << 20
PIECE = 600 * MIB
OUT_OF_MEMORY = 2
FIRST_CAP_PERCENT = 50

# GPU 1's context is current all the time; the stream is GPU 0's.
ALLOCATE = """
import sys
from support.shim.cuda_client import *
piece = int(sys.argv[1])
open_context(0)
stream = check(driver.cuStreamCreate(0))
open_context(1)
print(*(int(driver.cuMemAllocAsync(piece, stream)[0]) for _ in range(2)),
      int(driver.cuMemAlloc(piece)[0]), flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def two_gpus(tmp_path: Path, slice_of: SliceOf) -> Slice:
    """A slice of two GPUs, 1 GiB of each, of which the first alone has a cap."""
    profile = replace(PROFILES["h100-80g"], context_bytes=0)
    machine = Machine.create([profile, profile], tmp_path / "two-gpus", driver_version())
    part = slice_of(machine, memory_bytes=GIB)
    part.directory = tmp_path / "slice-of-two"
    first, second = (DeviceLimit(device.uuid, GIB) for device in machine.devices)
    capped = replace(first, core_percent=FIRST_CAP_PERCENT)
    create(part.directory, ContainerLimits("two", Family.VGPU, (capped, second)))
    return part


def test_stream_ordered_memory_is_charged_to_the_gpu_of_its_stream(two_gpus: Slice) -> None:
    process = two_gpus.start(ALLOCATE, str(PIECE))
    on_first, again_on_first, on_second = map(int, next_line(process).split())

    assert (on_first, again_on_first, on_second) == (0, OUT_OF_MEMORY, 0)
    assert [device.used_bytes for device in two_gpus.usage().devices] == [PIECE, PIECE]
    assert [books.memory_used_bytes for books in two_gpus.machine.books()] == [PIECE, PIECE]


def test_launches_on_an_uncapped_gpu_let_none_pass_uncounted_on_a_capped_one(
    two_gpus: Slice, compile_program: Compile
) -> None:
    program = compile_program("shim_two_gpus.c", flags=(f"-L{SIM_LIBRARY_DIR}", "-l:libcuda.so.1"))

    said = printed(program, env=two_gpus.environment())
    capped, uncapped = two_gpus.usage().devices
    assert capped.launches >= int(said) > 0
    assert uncapped.launches == 0  # nothing is counted where nothing is capped
