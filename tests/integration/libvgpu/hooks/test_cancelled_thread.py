"""A thread that is cancelled while its launch waits leaves its turn to the others."""

import pytest

from libvgpu.artifacts import SIM_LIBRARY_DIR
from libvgpu.sim import Machine
from support import Compile
from support.ended import printed
from support.shim.slices import SliceOf
from support.waiting import bar

GIB = 1 << 30
CAP_PERCENT = 10
THREADS = 3
# A launch waits behind a few of 5 ms at the cap.
LONGEST_LAUNCH_S = 0.5


@pytest.mark.parametrize("most_s", bar(LONGEST_LAUNCH_S))
def test_a_cancelled_thread_does_not_keep_its_turn(
    machine: Machine, slice_of: SliceOf, compile_program: Compile, most_s: float
) -> None:
    program = compile_program(
        "shim_cancelled_thread.c", flags=(f"-L{SIM_LIBRARY_DIR}", "-l:libcuda.so.1")
    )
    part = slice_of(machine, memory_bytes=GIB, core_percent=CAP_PERCENT)

    cancelled, longest_ms = map(float, printed(program, env=part.environment()).split())
    assert cancelled == THREADS
    assert longest_ms < 1000 * most_s
    told = part.usage().devices[0]
    assert told.launches >= THREADS and told.held_ns > 0
