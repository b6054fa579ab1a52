"""Host functions and waits in streams that stand in each other's way, or in that of what ends."""

import subprocess

from libvgpu.artifacts import SIM_LIBRARY_DIR
from libvgpu.sim import PROFILES, Machine
from support import Compile
from support.sim.programs import said_in
from support.waiting import PATIENCE_S

NOT_PERMITTED = 800

HOLDS = """
import threading
context = open_context()
stream, other = check(cuda.cuStreamCreate(1)), check(cuda.cuStreamCreate(1))
HOST_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
kept = []  # what streams still call must not be collected
def call(stream, function):
    kept.append(HOST_FUNCTION(lambda _: function()))
    check(cuda.cuLaunchHostFunc(stream, ctypes.cast(kept[-1], ctypes.c_void_p).value, 0))
def hold(stream):
    "Keeps a stream, and all that moves bytes from now on, until go is set."
    go = threading.Event()
    call(stream, lambda: go.wait(60))
    return go
def later(function, seconds=0.1):
    timer = threading.Timer(seconds, function)
    timer.start()
    return timer
"""


def test_functions_of_two_threads_in_one_stream_are_all_called(
    machine: Machine, compile_program: Compile
) -> None:
    program = compile_program("sim_calls.c", flags=(f"-L{SIM_LIBRARY_DIR}", "-l:libcuda.so.1"))
    subprocess.run([program], env=machine.environment(), timeout=PATIENCE_S, check=True)


def test_a_held_copy_brings_what_was_in_pageable_memory_at_the_call(machine: Machine) -> None:
    code = """
target = check(cuda.cuMemAlloc(64))
source = ctypes.create_string_buffer(b"first", 64)
go = hold(stream)
check(cuda.cuMemcpyHtoDAsync(target, ctypes.addressof(source), 64, stream))
source.value = b"other"
go.set()
check(cuda.cuStreamSynchronize(stream))
back = bytearray(64)
check(cuda.cuMemcpyDtoH(back, target, 64))
say(back=back[:5].decode())
"""
    assert said_in(machine, HOLDS + code) == {"back": "first"}


def test_a_held_box_is_staged_row_by_row(machine: Machine) -> None:
    code = """
ROWS, WIDTH, PITCH = 3, 5, 16
target = check(cuda.cuMemAlloc(ROWS * 32))
source = ctypes.create_string_buffer(bytes(range(ROWS * PITCH)), ROWS * PITCH)
box = cuda.CUDA_MEMCPY2D()
box.srcMemoryType = cuda.CUmemorytype.CU_MEMORYTYPE_HOST
box.srcHost, box.srcPitch = ctypes.addressof(source), PITCH
box.dstMemoryType = cuda.CUmemorytype.CU_MEMORYTYPE_DEVICE
box.dstDevice, box.dstPitch = target, 32
box.WidthInBytes, box.Height = WIDTH, ROWS
go = hold(stream)
check(cuda.cuMemcpy2DAsync(box, stream))
ctypes.memset(source, 255, ROWS * PITCH)
go.set()
check(cuda.cuStreamSynchronize(stream))
back = bytearray(ROWS * 32)
check(cuda.cuMemcpyDtoH(back, target, len(back)))
say(rows=[list(back[32 * i:32 * i + WIDTH]) for i in range(ROWS)])
"""
    assert said_in(machine, HOLDS + code) == {
        "rows": [[16 * row + column for column in range(5)] for row in range(3)]
    }


def test_a_held_copy_into_pageable_memory_is_waited_for(machine: Machine) -> None:
    code = """
source = check(cuda.cuMemAlloc(64))
check(cuda.cuMemsetD8(source, 7, 64))
pinned = int(check(cuda.cuMemHostAlloc(64, 0)))
back = bytearray(64)
go = hold(stream)
check(cuda.cuMemcpyDtoHAsync(pinned, source, 64, stream))
early = ctypes.string_at(pinned, 1) == b"\\7"
later(go.set)
check(cuda.cuMemcpyDtoHAsync(back, source, 64, stream))
say(early=early, back=back[0], pinned=ctypes.string_at(pinned, 1)[0])
"""
    assert said_in(machine, HOLDS + code) == {"early": False, "back": 7, "pinned": 7}


def test_memory_is_not_freed_from_inside_a_host_function(machine: Machine) -> None:
    code = """
address, seen = check(cuda.cuMemAlloc(64)), []
def function():
    check(cuda.cuCtxSetCurrent(context))
    seen.append(int(cuda.cuMemFree(address)[0]))
call(stream, function)
check(cuda.cuStreamSynchronize(stream))
say(inside=seen, outside=int(cuda.cuMemFree(address)[0]))
"""
    assert said_in(machine, HOLDS + code) == {"inside": [NOT_PERMITTED], "outside": 0}


def test_a_context_ends_whose_stream_waits_for_a_word_for_ever(machine: Machine) -> None:
    code = """
word = check(cuda.cuMemAlloc(64))
check(cuda.cuMemsetD8(word, 0, 64))
check(cuda.cuStreamWaitValue32(stream, word, 1, 1))
graph, graph_stream = check(cuda.cuGraphCreate(0)), other
check(cuda.cuStreamBeginCapture(graph_stream, cuda.CUstreamCaptureMode(2)))
check(cuda.cuStreamWaitValue32(graph_stream, word, 1, 1))
exec = check(cuda.cuGraphInstantiate(check(cuda.cuStreamEndCapture(graph_stream)), 0))
check(cuda.cuGraphLaunch(exec, graph_stream))
begun = time.monotonic()
check(cuda.cuDevicePrimaryCtxReset(0))
seconds = time.monotonic() - begun
check(cuda.cuDevicePrimaryCtxRetain(0))
say(soon=seconds < 60, again=int(cuda.cuMemAlloc(64)[0]))
"""
    assert said_in(machine, HOLDS + code) == {"soon": True, "again": 0}
    assert machine.books()[0].memory_used_bytes == 0


def test_a_context_that_ends_holds_up_nobody_meanwhile(costly_machine: Machine) -> None:
    code = """
ending = check(cuda.cuCtxCreate(None, 0, 0))
go = hold(check(cuda.cuStreamCreate(1)))
begun = time.monotonic()
thread = threading.Thread(target=lambda: check(cuda.cuCtxDestroy(ending)))
thread.start()
while int(cuda.cuStreamCreate(1)[0]) == 0:
    time.sleep(0.01)
check(cuda.cuCtxSetCurrent(context))
check(cuda.cuStreamCreate(1))
free = check(cuda.cuMemGetInfo())[0]
go.set()
thread.join()
say(seconds=time.monotonic() - begun, gained=check(cuda.cuMemGetInfo())[0] - free)
"""
    answer = said_in(costly_machine, HOLDS + code)
    assert answer["seconds"] < PATIENCE_S
    assert answer["gained"] == PROFILES["h100-80g"].context_bytes


def test_a_primary_context_is_not_begun_anew_before_it_ended(costly_machine: Machine) -> None:
    code = """
free = check(cuda.cuMemGetInfo())[0]
go = hold(stream)
thread = threading.Thread(target=lambda: check(cuda.cuDevicePrimaryCtxReset(0)))
thread.start()
while int(cuda.cuStreamQuery(stream)[0]) != 709:
    time.sleep(0.01)
later(go.set)
again = check(cuda.cuDevicePrimaryCtxRetain(0))
thread.join()
check(cuda.cuCtxSetCurrent(again))
say(set=go.is_set(), cost=free - check(cuda.cuMemGetInfo())[0])
"""
    assert said_in(costly_machine, HOLDS + code) == {"set": True, "cost": 0}


def test_a_library_is_unloaded_while_another_thread_needs_its_kernels(machine: Machine) -> None:
    code = """
PTX = b'''.version 7.0
.target sm_70
.visible .global .align 4 .b8 table[4096];
.visible .entry idle()
{ret;}'''
def load(): return check(cuda.cuLibraryLoadData(PTX, [], [], 0, [], [], 0))
leaving, staying = load(), load()
check(cuda.cuLibraryGetModule(leaving))
kernel = check(cuda.cuLibraryGetKernel(staying, b"idle"))
go = hold(stream)
begun = time.monotonic()
thread = threading.Thread(target=lambda: check(cuda.cuLibraryUnload(leaving)))
thread.start()
time.sleep(0.1)
check(cuda.cuLaunchKernel(int(kernel), 1, 1, 1, 1, 1, 1, 0, other, 0, 0))
go.set()
thread.join()
say(seconds=time.monotonic() - begun)
"""
    assert said_in(machine, HOLDS + code)["seconds"] < PATIENCE_S
