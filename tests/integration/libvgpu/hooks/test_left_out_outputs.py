"""Where a driver allows an output to be left out, so does every hook."""

import json
import re
import sys
from itertools import combinations
from pathlib import Path

import pytest

from libvgpu.hook_table import read_hook_table
from libvgpu.sim import Machine
from support import ROOT, Compile
from support.ended import run_to_end
from support.shim.slices import SliceOf
from support.sim.driver import library_of

MIB, GIB = 1 << 20, 1 << 30
LIBRARIES = {"cu": "libcuda.so.1", "nvml": "libnvidia-ml.so.1"}
IN_REGISTERS = 6
#: Leaving these out asks for the size of the list, so the simulated library answers.
LISTS = {"infos", "samples", "pids"}
#: Not the driver's to answer: in a slice there is no accounting.
ACCOUNTING = re.compile("nvmlDeviceGetAccounting")
NVML_NOT_SUPPORTED = 3
#: What is passed for a parameter of a type; others get 0, pointers a zeroed buffer of their own.
VALUES: dict[str, str | int] = {
    "size_t": GIB, "unsigned int": 1, "CUmemAllocationHandleType": 1, "CUmemAllocationType": 1,
    "CUdeviceptr": "address", "CUmemoryPool": "pool", "CUgraph": "graph", "nvmlDevice_t": "handle",
    "CUipcMemHandle": "structure", "CUmemGenericAllocationHandle": "physical",
    "nvmlSamplingType_t": 1,
}  # fmt: skip

PROGRAM = """
import ctypes, json, sys
from ctypes import byref, c_uint64, c_void_p
libraries = {"cu": ctypes.CDLL("libcuda.so.1"), "nvml": ctypes.CDLL("libnvidia-ml.so.1")}
cuda, nvml = libraries.values()
context, pool, graph, handle, address = (c_void_p() for _ in range(5))
assert cuda.cuInit(0) == cuda.cuDevicePrimaryCtxRetain(byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == cuda.cuGraphCreate(byref(graph), 0) == 0
assert cuda.cuDeviceGetDefaultMemPool(byref(pool), 0) == 0
assert cuda.cuMemAlloc_v2(byref(address), c_uint64(1 << 21)) == 0
assert nvml.nvmlInit_v2() == nvml.nvmlDeviceGetHandleByIndex_v2(0, byref(handle)) == 0
class Structure(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * 64)]
class Properties(ctypes.Structure): # CUmemAllocationProp
    _fields_ = [("type", ctypes.c_int), ("handles", ctypes.c_int), ("place", ctypes.c_int * 2),
                ("rest", ctypes.c_uint64 * 2)]
physical = c_uint64()
assert cuda.cuMemCreate(byref(physical), c_uint64(1 << 21), byref(Properties(1, 1, (1, 0))),
                        c_uint64()) == 0
values = {"pool": pool, "graph": graph, "handle": handle, "address": address,
          "physical": physical, "structure": Structure()}
for kind, symbol, given in json.load(sys.stdin):
    function = getattr(libraries[kind], symbol, None)
    buffers = [ctypes.create_string_buffer(1 << 14) if each == "buffer" else None
               for each in given]
    arguments = [buffer if buffer is not None else values[each] if isinstance(each, str)
                 else c_uint64(each) for each, buffer in zip(given, buffers)]
    print(symbol, end=" ", flush=True)
    print(function(*arguments) if function is not None else "absent", flush=True)
"""


def parameters() -> dict[str, list[tuple[str, str]]]:
    """Returns type and name of what every hooked function takes, twins included."""
    folder = ROOT / "libvgpu/include/vgpu"
    text = "".join(file.read_text() for file in sorted(folder.glob("*.h")))
    plain = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    found = {}
    for row in (row for row in read_hook_table() if row.is_hooked):
        declared = re.search(rf"\b{row.twin_of or row.symbol}\s*\(([^;]*?)\)\s*;", plain)
        assert declared is not None, row.symbol
        words = [
            " ".join(each.split()) for each in declared[1].split(",") if each.strip() != "void"
        ]
        found[row.symbol] = [
            (kind.strip(), name)
            for kind, name in (re.fullmatch(r"(.*?)(\w+)", each).groups() for each in words)  # type: ignore[union-attr]
        ]
    return found


def pointers_of(taken: list[tuple[str, str]]) -> list[int]:
    """Returns which parameters can be left out: outputs, and for good measure what is read."""
    return [
        at
        for at, (kind, name) in enumerate(taken[:IN_REGISTERS])
        if kind.endswith("*") and name not in LISTS
    ]


def value_of(kind: str, name: str) -> str | int:
    """Returns what is passed for a parameter that is not left out."""
    if kind.endswith("*"):
        return "buffer"
    return 1 if name.endswith("count") else VALUES.get(kind, 0)


def calls() -> list[tuple[str, str, list[str | int]]]:
    """Returns every hooked call with each pointer left out, and with each pair of them."""
    made: list[tuple[str, str, list[str | int]]] = []
    for symbol, taken in parameters().items():
        pointers = pointers_of(taken)
        given = [value_of(kind, name) for kind, name in taken]
        for count in (1, 2):
            for left_out in combinations(pointers, count):
                values = [0 if at in left_out else each for at, each in enumerate(given)]
                made.append((symbol[:4] if symbol[0] == "n" else "cu", symbol, values))
    return made


@pytest.fixture
def generous(compile_program: Compile, machine: Machine, tmp_path: Path) -> Path:
    """Returns a folder with a driver and an NVML that allow every pointer to be left out."""
    folder = tmp_path / "generous"
    folder.mkdir()
    for kind, library in LIBRARIES.items():
        rows = " ".join(
            f"EACH({symbol},{sum(1 << at for at in pointers_of(taken))})"
            for symbol, taken in parameters().items()
            if symbol.startswith(kind) and pointers_of(taken)
        )
        simulated = library_of(machine, library)
        shared = ("-shared", "-fPIC")
        named = compile_program(
            "generous_driver.c", flags=(*shared, "-DNAME_ALONE", f"-Wl,-soname,{simulated}")
        )
        front = (f'-DSIMULATED="{simulated}"', f"-DROWS={rows}", f"-Wl,-soname,{library}")
        built = compile_program(
            "generous_driver.c", "-Wl,--no-as-needed", str(named), flags=(*shared, *front)
        )
        (folder / library).symlink_to(built)
    return folder


def test_no_hook_reads_an_output_that_was_left_out(
    generous: Path, machine: Machine, slice_of: SliceOf
) -> None:
    part = slice_of(machine, memory_bytes=8 * MIB)  # full or not, the answer is the driver's
    environment = part.environment()
    environment["LD_LIBRARY_PATH"] = f"{generous}:{environment['LD_LIBRARY_PATH']}"

    done = run_to_end([sys.executable, "-c", PROGRAM], env=environment, input=json.dumps(calls()))

    answers = [line.split() for line in done.stdout.splitlines()]
    assert done.returncode == 0, (answers[-1], done.stderr)
    assert ["cuMemGetInfo_v2", "0"] in answers
    wrong = [
        (symbol, answer)
        for symbol, answer in answers
        if answer not in {"absent", str(NVML_NOT_SUPPORTED if ACCOUNTING.match(symbol) else 0)}
    ]
    assert wrong == []
