"""NVML's lists of processes under the shim, on drivers that have other forms of them or none."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from libvgpu.artifacts import SIM_LIBRARY_DIR
from libvgpu.driver_releases import RELEASES
from libvgpu.ledger_view import read_ledger
from libvgpu.sim import Machine
from support import Compile
from support.lines import expect, start_listening
from support.shim.lacking import without_symbols
from support.shim.slices import Slice, SliceOf
from support.sim.nvml_programs import NVML_PRELUDE
from support.sim.releases import FORMS, machine_of

MIB, GIB = 1 << 20, 1 << 30
CONTEXT = 8 * MIB
SECOND, THIRD = (f"nvmlDeviceGetComputeRunningProcesses{version}" for version in ("_v2", "_v3"))

HOLD = """
import sys
from support.shim.cuda_client import *
open_context()
for size in map(int, sys.argv[1:]):
    check(driver.cuMemAlloc(size))
print("held", flush=True)
sys.stdin.readline()
"""


def hold(part: Slice, *sizes: int) -> subprocess.Popen[str]:
    process = part.start(HOLD, *map(str, sizes))
    expect(process, "held")
    return process


# ---- the process's own figure --------------------------------------------------------------------


@contextmanager
def crowd(machine: Machine, compile_program: Compile, count: int) -> Iterator[None]:
    """So many other processes on the GPU, in no slice."""
    program = compile_program("sim_crowd.c", flags=(f"-L{SIM_LIBRARY_DIR}", "-l:libcuda.so.1"))
    others = start_listening([program, str(count)], machine.environment(), stderr=None)
    expect(others)
    try:
        yield
    finally:
        others.communicate()


@pytest.mark.parametrize("count", [2, 60, 200])
@pytest.mark.parametrize("name", [*FORMS, "535.54 by _v3", "580 by _v3"])
def test_a_process_finds_its_own_figure_among_few_and_many(
    tmp_path: Path, slice_of: SliceOf, compile_program: Compile, name: str, count: int
) -> None:
    """Room for 64 entries of 24 bytes is room for 48 of 32."""
    name, _, is_third = name.partition(" by ")
    machine = machine_of(name, tmp_path / "machine", context_bytes=CONTEXT)
    part = slice_of(machine, memory_bytes=4 * GIB)
    part.change(context_bytes=0)
    if is_third:
        part = without_symbols(part, tmp_path / "lib", "libnvidia-ml.so.1", SECOND)

    with crowd(machine, compile_program, count):
        hold(part)

        ledger = read_ledger(part.directory)
    # `context_bytes` is of exact measurements alone.
    assert (ledger.used_bytes, ledger.context_bytes) == ((CONTEXT,), (CONTEXT,))


# ---- what programs are shown ---------------------------------------------------------------------

LISTS = """
import ctypes, json, os
library = ctypes.CDLL("libnvidia-ml.so.1")
ROOM, GUARD = 8, 0xEE
def listed(symbol, entry_bytes):
    if not hasattr(library, symbol):
        return refusal(getattr(nvml, symbol), handles[0])
    buffer = (ctypes.c_ubyte * (ROOM * 32))(*[GUARD] * (ROOM * 32))
    count = ctypes.c_uint(ROOM)
    assert getattr(library, symbol)(handles[0], ctypes.byref(count), buffer) == 0
    image, rows = bytes(buffer), []
    assert set(image[count.value * entry_bytes:]) == {GUARD}
    for at in range(0, count.value * entry_bytes, entry_bytes):
        rows.append([int.from_bytes(image[at:at + 4], "little"),
                     int.from_bytes(image[at + 8:at + 16], "little")])
        assert set(image[at + 24:at + entry_bytes]) <= {0}
    return sorted(rows)
print(json.dumps([
    listed(f"nvmlDeviceGet{kind}RunningProcesses{version}", size)
    for kind in ("Compute", "MPSCompute", "Graphics")
    for version, size in (("_v2", 24), ("_v3", int(os.environ["ENTRY_BYTES"])))]))
"""
FUNCTION_NOT_FOUND = 13


@pytest.mark.parametrize("shim", [True, False], ids=["shim", "bare"])
@pytest.mark.parametrize("name", FORMS)
def test_lists_have_the_form_of_the_driver_and_none_that_it_lacks(
    tmp_path: Path, slice_of: SliceOf, monkeypatch: pytest.MonkeyPatch, name: str, shim: bool
) -> None:
    release = RELEASES[name]
    machine = machine_of(name, tmp_path / "machine", context_bytes=0)
    part = slice_of(machine, memory_bytes=GIB)
    held = {hold(part, size).pid: size for size in (2 * MIB, 4 * MIB, 6 * MIB)}
    monkeypatch.setenv("ENTRY_BYTES", str(release.process_entry_bytes))

    words = part.run(NVML_PRELUDE + LISTS, shim=shim)

    rows = sorted([pid, size] for pid, size in held.items())
    third = [FUNCTION_NOT_FOUND] * 3 if THIRD in release.lacks else [rows, [], []]
    expected = [each for pair in zip([rows, [], []], third, strict=True) for each in pair]
    assert json.loads(" ".join(words)) == expected
