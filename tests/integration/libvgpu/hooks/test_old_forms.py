"""The calls of before CUDA 3.2 answer in 32 bits, where a driver has a context of their time."""

import ast
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from libvgpu.sim import Machine
from support import Compile
from support.ended import run_to_end
from support.shim.slices import Slice
from support.sim.releases import driver_of

MIB, GIB = 1 << 20, 1 << 30
DRIVER = "libcuda.so.1"
MOST = (1 << 32) - 1
UNTOUCHED = 0x5A5A5A5A
#: Each output is followed by a word that no call may touch.
PROGRAM = f"""
import ctypes
cuda, context, wide = ctypes.CDLL("{DRIVER}"), ctypes.c_void_p(), ctypes.c_size_t()
assert cuda.cuInit(0) == cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
said = {{}}
def call(symbol, outputs, *more):
    words = [(ctypes.c_uint * 2)(0, {UNTOUCHED}) for _ in range(outputs)]
    assert getattr(cuda, symbol)(*words, *more) == 0, symbol
    assert [word[1] for word in words] == [{UNTOUCHED}] * outputs, symbol
    return [word[0] for word in words]
def used():
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    assert cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
    return total.value - free.value
said["info"], said["total"] = call("cuMemGetInfo", 2), call("cuDeviceTotalMem", 1, 0)
plain, = call("cuMemAlloc", 1, {4 * MIB})
said["plain"] = used()
rows, said["pitch"] = call("cuMemAllocPitch", 2, 1001, 4096, 4)
said["rows"] = used()
said["info after"] = call("cuMemGetInfo", 2)
call("cuMemFree", 0, plain), call("cuMemFree", 0, rows)
said["freed"] = used()
print(said)
"""


@pytest.fixture
def old(compile_program: Compile, machine: Machine, tmp_path: Path) -> Path:
    """Returns a folder with a driver that has a context of before CUDA 3.2."""
    simulated = driver_of(machine.environment({}))
    shared = ("-shared", "-fPIC")
    # The loader takes a second library of one name only where it is needed by its path.
    named = compile_program(
        "old_driver.c", flags=(*shared, "-DNAME_ALONE", f"-Wl,-soname,{simulated}")
    )
    library = compile_program(
        "old_driver.c", "-Wl,--no-as-needed", str(named), flags=(*shared, f"-Wl,-soname,{DRIVER}")
    )
    folder = tmp_path / "old"
    folder.mkdir()
    (folder / DRIVER).symlink_to(library)
    return folder


@pytest.mark.parametrize("limit", [64 * MIB, 3 * GIB, MOST + 1, 8 * GIB])
def test_sizes_and_addresses_have_32_bits(
    old: Path, machine: Machine, slice_of: Callable[..., Slice], limit: int
) -> None:
    environment = slice_of(machine, memory_bytes=limit).environment()
    environment["LD_LIBRARY_PATH"] = f"{old}:{environment['LD_LIBRARY_PATH']}"

    done = run_to_end([sys.executable, "-c", PROGRAM], env=environment)

    assert done.returncode == 0, done.stderr
    said = ast.literal_eval(done.stdout)
    shown, taken = min(limit, MOST), 4 * MIB + 1024 * 4096
    assert said == {
        "info": [shown, shown],
        "total": [shown],
        "plain": 4 * MIB,
        "pitch": 1024,
        "rows": taken,
        "info after": [min(limit - taken, MOST), shown],
        "freed": 0,
    }
