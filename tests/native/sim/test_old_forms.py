"""Entry points of before CUDA 3.2, for which no context is left that they work in."""

import ast
import re
from pathlib import Path

import pytest

from libvgpu.hook_table import read_hook_table
from libvgpu.sim import Machine
from support import ROOT
from support.sim.programs import run

INVALID_CONTEXT, NOT_INITIALIZED = 201, 3
FIRST_PRESENT = 3020
#: Those that work in no context: one makes one, the other asks a device.
WITHOUT_CONTEXT = {"cuCtxCreate", "cuDeviceTotalMem"}
ABSENT = ROOT / "libvgpu/sim/driver/absent.def"


def old_forms() -> list[str]:
    """Returns the symbols that CUDA 3.2 replaced by wider ones, but for what is not simulated."""
    wider = {row.symbol for row in read_hook_table() if row.since == FIRST_PRESENT}
    absent = set(re.findall(r"^ABSENT\((\w+)\)$", Path(ABSENT).read_text(), flags=re.M))
    return sorted(
        row.symbol
        for row in read_hook_table()
        if f"{row.symbol}_v2" in wider and row.symbol not in absent | WITHOUT_CONTEXT
    )


PRESENT = {
    "primary": "open_context()",
    "created": "check(cuda.cuInit(0)); check(create_context())",
    "created by the oldest call": "check(cuda.cuInit(0)); assert libcuda.cuCtxCreate("
    "ctypes.byref(ctypes.c_void_p()), 0, 0) == 0",
    "none": "check(cuda.cuInit(0))",
}


@pytest.mark.parametrize("context", PRESENT)
def test_the_forms_of_before_cuda_3_2_find_no_context_of_their_time(
    machine: Machine, context: str
) -> None:
    symbols = old_forms()
    assert len(symbols) > 30
    code = f"""
libcuda = ctypes.CDLL("libcuda.so.1")
room = ctypes.create_string_buffer(4096)
before = {{each: getattr(libcuda, each)(room, room, room, room, room) for each in {symbols}}}
{PRESENT[context]}
after = {{each: getattr(libcuda, each)(room, room, room, room, room) for each in {symbols}}}
print((before, after, room.raw == bytes(4096)))
"""
    before, after, is_untouched = ast.literal_eval(run(machine, code))
    assert before == dict.fromkeys(symbols, NOT_INITIALIZED)
    assert after == dict.fromkeys(symbols, INVALID_CONTEXT)
    assert is_untouched
