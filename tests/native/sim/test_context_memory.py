"""What a context of the simulated GPU takes besides its allocations, as on the H100."""

from pathlib import Path
from typing import Any

import pytest

from libvgpu.sim import Machine
from support.sim.measured import MIB, SHOWN, measured_machine, said_by, shown_launch, shown_memory

INVALID_VALUE, OUT_OF_MEMORY = 1, 2
THREADS = 2048 * 132

KERNELS = """
HEAD = ".version 7.0\\n.target sm_50\\n.address_size 64\\n"
def load(text):
    return check(cuda.cuModuleLoadData((HEAD + text + "\\0").encode()))
def kernel(name, body="", head=""):
    module = load(head + ".visible .entry %s()\\n{\\n%s\\nret;\\n}\\n" % (name, body))
    return check(cuda.cuModuleGetFunction(module, name.encode()))
def local(bytes): return kernel("loc", ".local .align 8 .b8 depot[%d];" % bytes)
PRINTF = ".extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);\\n"
MALLOC = ".extern .func (.param .b64 r) malloc (.param .b64 n);\\n"
def launch(function, stream=0):
    return code(cuda.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, 0, 0))
Limit = cuda.CUlimit
def limit(name, value): check(cuda.cuCtxSetLimit(getattr(Limit, "CU_LIMIT_" + name), value))
"""


@pytest.fixture
def measured(tmp_path: Path) -> Machine:
    return measured_machine(tmp_path)


def test_contexts(measured: Machine) -> None:
    code = """
other = check(create_context())
two = grew()
check(cuda.cuCtxDestroy(other))
say(value=[begun, two, grew()])
"""
    assert said_by(measured, code) == [
        shown_memory("context_bytes")["context_bytes"],
        shown_memory("second_context")["second_context"],
        shown_memory("second_context_gone")["second_context_gone"],
    ]


def test_a_green_context(measured: Machine) -> None:
    code = """
import ctypes
lib = ctypes.CDLL("libcuda.so.1")
resource, group = ctypes.create_string_buffer(256), ctypes.create_string_buffer(256)
green, description, count = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint(1)
assert lib.cuDeviceGetDevResource(0, resource, 1) == 0
assert lib.cuDevSmResourceSplitByCount(group, ctypes.byref(count), resource, None, 0, 16) == 0
assert lib.cuDevResourceGenerateDesc(ctypes.byref(description), group, 1) == 0
assert lib.cuGreenCtxCreate(ctypes.byref(green), description, 0, 1) == 0
there = grew()
assert lib.cuGreenCtxDestroy(green) == 0
say(value=[there, grew()])
"""
    assert said_by(measured, code) == [4 * MIB, 0]


@pytest.mark.parametrize(
    "row",
    [row for row in SHOWN["memory"] if "streams" in row],
    ids=lambda row: str(row["streams"]),
)
def test_streams(measured: Machine, row: dict[str, Any]) -> None:
    code = f"""
streams = [check(cuda.cuStreamCreate(1)) for _ in range({row["streams"]})]
full = grew()
for stream in streams: check(cuda.cuStreamDestroy(stream))
ended = grew()
for _ in range({row["streams"]}): check(cuda.cuStreamCreate(0))
say(value=[full, ended, grew()])
"""
    assert said_by(measured, code) == [row["grew"]] * 3


def test_streams_of_a_context_that_ends(measured: Machine) -> None:
    code = """
other = check(create_context())
for _ in range(9): check(cuda.cuStreamCreate(1))
nine = grew() - 518 * MIB
check(cuda.cuCtxDestroy(other))
say(value=[nine, grew()])
"""
    assert said_by(measured, code) == [6 * MIB, 0]


def test_local_memory(measured: Machine) -> None:
    shown = shown_launch("loc")
    code = f"""
function = local({shown["local_bytes"]})
told = check(cuda.cuFuncGetAttribute(
    cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, function))
got = grew()
assert launch(function) == 0
first = grew() - got
assert launch(local(2048)) == 0 and launch(function) == 0
same = grew() - got
limit("STACK_SIZE", 1024)
given = grew() - got - same
assert launch(function) == 0
say(value=[told, got, first, same - first, given, grew() - got])
"""
    assert said_by(measured, KERNELS + code) == [
        shown["local_bytes"],
        shown["get_function"],
        shown["launch"],
        0,
        shown_memory("stack_limit_1k_gives")["stack_limit_1k_gives"],
        shown_memory("relaunch_local")["relaunch_local"],
    ]


def test_local_memory_grows_by_the_difference_and_is_refused_at_the_launch(
    measured: Machine,
) -> None:
    code = """
steps = []
for bytes in (512, 4096, 2048, 8192):
    assert launch(local(bytes)) == 0
    steps.append(grew())
room = check(cuda.cuMemGetInfo())[0]
held = check(cuda.cuMemAlloc(room - 2 * MIB))
full = grew()
refused = [launch(local(16384)), launch(local(8192)), grew() - full]
check(cuda.cuMemFree(held))
refused.append(launch(local(16384)))
other = check(create_context())
assert launch(local(4096)) == 0
both = grew()
check(cuda.cuCtxDestroy(other))
say(value=[steps, refused, both - grew()])
"""
    seen = said_by(measured, KERNELS + code)

    assert seen[0] == [0, 3072 * THREADS, 3072 * THREADS, 7168 * THREADS]
    assert seen[1] == [OUT_OF_MEMORY, 0, 0, 0]
    assert seen[2] == 3072 * THREADS + 518 * MIB


def test_local_memory_may_be_rounded_and_have_slack(tmp_path: Path) -> None:
    machine = measured_machine(tmp_path, local_step_bytes=512, local_slack_bytes=256 * MIB)
    code = """
steps = []
for bytes in (1040, 1536, 2049, 3072, 4096):
    assert launch(local(bytes)) == 0
    steps.append(grew())
say(value=steps)
"""
    seen = said_by(machine, KERNELS + code)

    assert seen == [0, 0, 1536 * THREADS, 1536 * THREADS, 3072 * THREADS]


@pytest.mark.parametrize(
    "form", ["cuLaunchKernel_ptsz", "cuLaunchKernelEx", "cuLaunchCooperativeKernel", "cuLaunchGrid"]
)
def test_local_memory_of_other_forms_of_launches(measured: Machine, form: str) -> None:
    calls = {
        "cuLaunchKernel_ptsz": "lib.cuLaunchKernel_ptsz(f, 1, 1, 1, 1, 1, 1, 0, None, None, None)",
        "cuLaunchCooperativeKernel": (
            "lib.cuLaunchCooperativeKernel(f, 1, 1, 1, 1, 1, 1, 0, None, None)"
        ),
        "cuLaunchKernelEx": "lib.cuLaunchKernelEx(config, f, None, None)",
        "cuLaunchGrid": "(lib.cuFuncSetBlockShape(f, 1, 1, 1), lib.cuLaunchGrid(f, 1, 1))[1]",
    }
    code = f"""
lib = ctypes.CDLL("libcuda.so.1")
f = ctypes.c_void_p(int(local(4096)))
config = (ctypes.c_uint * 16)(1, 1, 1, 1, 1, 1)
assert {calls[form]} == 0
say(value=grew())
"""
    assert said_by(measured, KERNELS + code) == 3072 * THREADS


def test_local_memory_of_graphs_is_taken_when_they_are_made_executable(measured: Machine) -> None:
    code = """
stream, function = check(cuda.cuStreamCreate(1)), local(4096)
begun = used()
check(cuda.cuStreamBeginCapture(
    stream, cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL))
assert launch(function, stream) == 0
graph = check(cuda.cuStreamEndCapture(stream))
outer = check(cuda.cuGraphCreate(0))
check(cuda.cuGraphAddChildGraphNode(outer, [], 0, graph))
captured = grew()
held = check(cuda.cuMemAlloc(check(cuda.cuMemGetInfo())[0] - 2 * MIB))
refused = code(cuda.cuGraphInstantiate(outer, 0))
check(cuda.cuMemFree(held))
check(cuda.cuGraphInstantiate(outer, 0))
say(value=[captured, refused, grew()])
"""
    assert said_by(measured, KERNELS + code) == [0, OUT_OF_MEMORY, 3072 * THREADS]


def test_the_heap_of_kernels_that_allocate(measured: Machine) -> None:
    shown = shown_launch("ma")
    code = """
function = kernel("ma", "{ call (r), malloc, (n); }", MALLOC)
plain = kernel("plain")
got = grew()
assert launch(plain) == 0
before = grew()
assert launch(function) == 0 and launch(function) == 0
say(value=[got, before, grew()])
"""
    assert said_by(measured, KERNELS + code) == [shown["get_function"], 0, shown["launch"]]


def test_buffers_are_taken_by_the_first_kernel_that_uses_them(measured: Machine) -> None:
    code = """
limit("PRINTF_FIFO_SIZE", 64 * MIB); limit("MALLOC_HEAP_SIZE", 100 * MIB)
set = grew()
assert launch(kernel("say_it", "{ call (r), vprintf, (a, b); }", PRINTF)) == 0
printed = grew()
helper = ".func helper()\\n{\\n{ call (r), malloc, (n); }\\nret;\\n}\\n"
assert launch(kernel("calls_it", "call helper;", MALLOC + helper)) == 0
say(value=[set, printed, grew() - printed])
"""
    assert said_by(measured, KERNELS + code) == [0, 64 * MIB, 102 * MIB]


def test_code_that_a_first_launch_loads(measured: Machine) -> None:
    code = """
text = "// vgpu_sim_first_launch_mib=93\\n.visible .entry k()\\n{\\nret;\\n}\\n"
module = load(text)
loaded = grew()
function = check(cuda.cuModuleGetFunction(module, b"k"))
asked = grew()
assert launch(function) == 0
launched = grew()
check(cuda.cuModuleUnload(module))
gone = grew()
library = check(cuda.cuLibraryLoadData((HEAD + text + "\\0").encode(), [], [], 0, [], [], 0))
kept = check(cuda.cuLibraryGetKernel(library, b"k"))
before = grew()
assert launch(cuda.CUfunction(int(kept))) == 0
first = grew()
other = check(create_context())
assert launch(cuda.CUfunction(int(kept))) == 0
check(cuda.cuCtxDestroy(other))
check(cuda.cuLibraryUnload(library))
say(value=[value // MIB for value in (loaded, asked, launched, gone, before, first, grew())])
"""
    assert said_by(measured, KERNELS + code) == [0, 94, 94, 0, 0, 94, 0]


def test_pools_grow_in_steps(measured: Machine) -> None:
    shown = shown_memory("pool_growth")["pool_growth"]
    code = f"""
stream, seen, piece = check(cuda.cuStreamCreate(0)), [], 0
begun = used()
for bytes, _ in {shown}:
    if bytes > 0: piece = check(cuda.cuMemAllocAsync(bytes, stream))
    else: check(cuda.cuMemFreeAsync(piece, stream))
    check(cuda.cuStreamSynchronize(stream))
    seen.append([bytes, grew()])
say(value=seen)
"""
    assert said_by(measured, code) == shown


def test_managed_memory_is_taken_as_the_device_touches_it(measured: Machine) -> None:
    code = """
stream = check(cuda.cuStreamCreate(0))
begun = used()
lib = ctypes.CDLL("libcuda.so.1")
piece = int(check(cuda.cuMemAllocManaged(64 * MIB, 1)))
small = int(check(cuda.cuMemAllocManaged(100, 1)))
steps = [grew()]
def step(*answer):
    assert not any(answer), answer
    steps.append(grew() // MIB)
def prefetch(at, bytes, device):
    return lib.cuMemPrefetchAsync(
        ctypes.c_uint64(at), ctypes.c_size_t(bytes), device, ctypes.c_void_p(int(stream)))
ctypes.memset(piece, 1, 64 * MIB)
step(prefetch(piece + 3 * MIB, 2 * MIB, 0))
step(code(cuda.cuMemsetD8(piece, 5, 1)))
step(code(cuda.cuMemcpyHtoD(piece + 10 * MIB, bytes(4096), 4096)))
step(code(cuda.cuMemcpyDtoD(small, piece, 100)))
step(prefetch(piece, 64 * MIB, 0))
step(prefetch(piece, 5 * MIB, -1))
steps.append(ctypes.string_at(piece + 20 * MIB, 2).hex())
step(code(cuda.cuMemFree(piece)))
step(code(cuda.cuMemFree(small)))
say(value=steps)
"""
    assert said_by(measured, code) == [
        shown_memory("managed_at_call")["managed_at_call"],
        4,
        6,
        8,
        10,
        66,
        62,
        "0101",
        2,
        shown_memory("managed_freed")["managed_freed"],
    ]


def test_managed_memory_that_finds_no_room_stays_on_the_host(measured: Machine) -> None:
    code = """
piece = int(check(cuda.cuMemAllocManaged(64 * MIB, 1)))
check(cuda.cuMemAlloc(check(cuda.cuMemGetInfo())[0] // (2 * MIB) * 2 * MIB - 6 * MIB))
begun = used()
check(cuda.cuMemsetD8(piece, 5, 64 * MIB))
say(value=[grew() // MIB, ctypes.string_at(piece + 63 * MIB, 1).hex()])
"""
    assert said_by(measured, code) == [6, "05"]
