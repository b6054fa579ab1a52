"""Programs that fork while their threads are busy in the simulated driver."""

import pytest

from libvgpu.artifacts import SIM_LIBRARY_DIR
from libvgpu.sim import Machine
from support import Compile
from support.ended import printed

FORKS = 200


@pytest.mark.parametrize("when", ["busy", "first"])
def test_children_of_threads_in_the_driver_do_not_hang(
    machine: Machine, compile_program: Compile, when: str
) -> None:
    libraries = ("-l:libcuda.so.1", "-l:libnvidia-ml.so.1")
    program = compile_program("sim_fork.c", flags=(f"-L{SIM_LIBRARY_DIR}", *libraries))

    printed(program, str(FORKS), when, env=machine.environment())
    assert machine.books()[0].memory_used_bytes == 0
