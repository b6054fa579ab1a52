"""Threads of one process that share streams, events, pools and graphs of the simulated GPU."""

import pytest

from libvgpu.artifacts import SIM_LIBRARY_DIR
from libvgpu.sim import Machine
from support import Compile
from support.ended import printed

CALLS_A_THREAD = 3000
EVENTS = 5000
THREADS = 6
CHURN = ("tests/native/sim_churn_memory.c", "tests/native/sim_churn_graphs.c")


@pytest.mark.parametrize("seed", range(3))
def test_threads_share_streams_events_pools_and_graphs(
    machine: Machine, compile_program: Compile, seed: int
) -> None:
    program = compile_program("sim_threads.c", flags=(f"-L{SIM_LIBRARY_DIR}", "-l:libcuda.so.1"))

    printed(program, str(CALLS_A_THREAD), str(seed), env=machine.environment())
    assert machine.books()[0].memory_used_bytes == 0


def test_an_event_that_is_just_being_recorded_can_be_waited_for(
    machine: Machine, compile_program: Compile
) -> None:
    program = compile_program(
        "sim_event_first.c", flags=(f"-L{SIM_LIBRARY_DIR}", "-l:libcuda.so.1")
    )

    printed(program, str(EVENTS), env=machine.environment())


def test_threads_that_make_calls_of_every_kind_end_well(
    machine: Machine, compile_program: Compile
) -> None:
    flags = (f"-L{SIM_LIBRARY_DIR}", "-l:libcuda.so.1")
    program = compile_program("sim_churn.c", *CHURN, flags=flags)

    printed(program, "50000", str(THREADS), env=machine.environment())
    assert machine.books()[0].memory_used_bytes == 0
