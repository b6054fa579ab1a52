"""cuInit inside a library's constructor and on another thread at once: no deadlock."""

import pytest

from libvgpu.artifacts import SIM_LIBRARY_DIR
from libvgpu.sim import Machine
from support import Compile
from support.ended import printed
from support.shim.slices import SliceOf

GIB = 1 << 30
ROUNDS = 8


@pytest.mark.parametrize("state", ["cold", "warm"])
def test_a_constructor_that_initialises_cuda_does_not_deadlock(
    machine: Machine, slice_of: SliceOf, compile_program: Compile, state: str
) -> None:
    library = compile_program("shim_init_library.c", flags=("-shared", "-fPIC"))
    program = compile_program("shim_init_race.c", flags=(f"-L{SIM_LIBRARY_DIR}", "-l:libcuda.so.1"))
    part = slice_of(machine, memory_bytes=GIB)

    for _ in range(ROUNDS):
        said = printed(program, library, state, env=part.environment())
        assert int(said) == GIB  # the slice's own: the shim was there
