"""Kernels of collectives under a cap: charged, and not held back once the collective has begun."""

from dataclasses import replace
from pathlib import Path

import pytest

from libvgpu.sim import PROFILES, Machine
from support.shim.slices import SliceOf

GIB = 1 << 30
CAP_PERCENT = 20
PARTS, PART_MS = 12, 20
#: What collective_debt.h lets parts be ahead of their cap, and a part.
MOST_AHEAD_SECONDS = 1.6
#: Of releases of CUDA: no names of functions at all, kernels of libraries without names, all of it.
NO_NAMES, NO_KERNEL_NAMES, NEWEST = 11040, 12020, 13000

# Without the bindings, which need a newer driver.
PROGRAM = """
import ctypes, sys, time
from support.shim.cuda_client import SPIN_PTX
name, how, parts, part_ms = sys.argv[1].encode(), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
cuda = ctypes.CDLL("libcuda.so.1")
def call(name, *arguments):
    made = ctypes.c_void_p()
    error = getattr(cuda, name)(ctypes.byref(made), *arguments)
    assert error == 0, (name, error)
    return made
def check(error): assert error == 0, error
class Node(ctypes.Structure):
    _fields_ = [("function", ctypes.c_void_p), ("sizes", ctypes.c_uint * 7),
                ("parameters", ctypes.c_void_p), ("extra", ctypes.c_void_p)]
check(cuda.cuInit(0))
check(cuda.cuCtxSetCurrent(call("cuDevicePrimaryCtxRetain", 0)))
stream = call("cuStreamCreate", 0)
def function(name):
    return call("cuModuleGetFunction", call("cuModuleLoadData", SPIN_PTX.replace(b"spin_ns", name)),
                name)
def kernel(name):
    loaded = call("cuLibraryLoadData", SPIN_PTX.replace(b"spin_ns", name), *[None] * 2, 0,
                  *[None] * 2, 0)
    return call("cuKernelGetFunction", call("cuLibraryGetKernel", loaded, name))
length = ctypes.c_ulonglong()
arguments = (ctypes.c_void_p * 1)(ctypes.addressof(length))
def launch(function, ms):
    length.value = ms * 1_000_000
    check(cuda.cuLaunchKernel(function, *[1] * 6, 0, stream, arguments, None))
def node_of(function):
    length.value = part_ms * 1_000_000
    return Node(function, (ctypes.c_uint * 7)(*[1] * 6), ctypes.addressof(arguments))
def graph_of(function):
    graph = call("cuGraphCreate", 0)
    added = call("cuGraphAddKernelNode", graph, None, ctypes.c_size_t(0),
                 ctypes.byref(node_of(function)))
    return graph, added
def executable(graph): return call("cuGraphInstantiate_v2", graph, None, None, ctypes.c_size_t(0))
plain = function(b"plain_spin_ns")
part = kernel(name) if how == "library" else function(name)
graph, node = graph_of(part if how in ("graph", "nested") else plain)
if how == "nested":
    inner, graph = graph, call("cuGraphCreate", 0)
    call("cuGraphAddChildGraphNode", graph, None, ctypes.c_size_t(0), inner)
made = executable(graph)
if how == "updated":
    check(cuda.cuGraphExecUpdate(made, graph_of(part)[0], ctypes.byref(ctypes.c_void_p()),
                                 ctypes.byref(ctypes.c_int())))
if how == "node set":
    check(cuda.cuGraphExecKernelNodeSetParams(made, node, ctypes.byref(node_of(part))))
def launch_part():
    if how in ("function", "library"):
        launch(part, part_ms)
    else:
        check(cuda.cuGraphLaunch(made, stream))
def wait(): check(cuda.cuStreamSynchronize(stream))
launch(plain, 1); wait()
start = time.monotonic()
for _ in range(parts):
    launch_part(); wait()
print(time.monotonic() - start)
start = time.monotonic()
launch(plain, 1); wait()
print(time.monotonic() - start)
"""

pytestmark = pytest.mark.virtual


def run(
    folder: Path, slice_of: SliceOf, cuda_version: int, how: str, name: str, parts: int = PARTS
) -> tuple[float, float]:
    """Returns how long the parts took, and a plain kernel behind them, in seconds."""
    profile = replace(PROFILES["h100-80g"], context_bytes=0)
    machine = Machine.create([profile], folder / "machine", cuda_version)
    part = slice_of(machine, memory_bytes=GIB, core_percent=CAP_PERCENT)
    took, after = map(float, part.run(PROGRAM, name, how, str(parts), str(PART_MS)))
    return took, after


@pytest.mark.parametrize(
    ("cuda_version", "how", "name"),
    [
        (NO_NAMES, "function", "ncclKernel_AllReduce_spin_ns"),
        (NO_NAMES, "graph", "cross_device_reduce_1stage_spin_ns"),
        (NO_NAMES, "node set", "oneShotAllReduceKernel_spin_ns"),
        (NO_KERNEL_NAMES, "library", "multimem_one_shot_kernel_spin_ns"),
        (NEWEST, "function", "allreduce_fusion_kernel_oneshot_lamport_spin_ns"),
        (NEWEST, "nested", "ncclSymkDevKernel_AllReduce_spin_ns"),
        (NEWEST, "updated", "ncclDevKernel_spin_ns"),
    ],
)
def test_the_parts_of_a_collective_are_not_held(
    tmp_path: Path, slice_of: SliceOf, cuda_version: int, how: str, name: str
) -> None:
    took, _ = run(tmp_path, slice_of, cuda_version, how, name)

    assert took < 2 * PARTS * PART_MS / 1e3


@pytest.mark.parametrize("how", ["function", "graph"])
def test_other_kernels_are_held_one_by_one(tmp_path: Path, slice_of: SliceOf, how: str) -> None:
    took, after = run(tmp_path, slice_of, NEWEST, how, "small_reduce_spin_ns")

    assert took > 0.8 * PARTS * PART_MS / 1e3 * 100 / CAP_PERCENT
    assert after < 0.4


def test_a_program_of_nothing_but_collectives_is_held_to_its_cap_in_the_end(
    tmp_path: Path, slice_of: SliceOf
) -> None:
    many = 200

    took, _ = run(tmp_path, slice_of, NEWEST, "graph", "ncclDevKernel_spin_ns", many)

    ideal_seconds = many * PART_MS / 1e3 * 100 / CAP_PERCENT
    assert ideal_seconds - MOST_AHEAD_SECONDS <= took <= 1.01 * ideal_seconds
