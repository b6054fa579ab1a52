"""What a context's limits take beyond their defaults is charged."""

from libvgpu.sim import Machine
from libvgpu.sim.faults import CallFaults
from support import Compile
from support.shim.slices import SliceOf
from support.shim.walk import assert_exact, walk

MIB = 1 << 20
GIB = 1 << 30
STACK_BYTES = 4096
CALL_NS = 100_000

START = """
from support.shim.cuda_client import *
L = driver.CUlimit
STACK, PRINTF = L.CU_LIMIT_STACK_SIZE, L.CU_LIMIT_PRINTF_FIFO_SIZE
HEAP = L.CU_LIMIT_MALLOC_HEAP_SIZE
def limit(which): return check(driver.cuCtxGetLimit(which))
def set_limit(which, bytes): return int(driver.cuCtxSetLimit(which, bytes)[0])
def free(): return check(driver.cuMemGetInfo())[0]
context = open_context()
default = {which: limit(which) for which in (STACK, PRINTF, HEAP)}
"""


def test_each_limit_is_charged_beyond_its_default_and_given_back_with_less(
    machine: Machine, slice_of: SliceOf
) -> None:
    part = slice_of(machine, memory_bytes=4 * GIB)
    code = f"""
look("none")
print(set_limit(HEAP, default[HEAP] + 100 * MIB)); look("heap")
print(set_limit(PRINTF, default[PRINTF] + 10 * MIB)); look("printf")
print(set_limit(STACK, {STACK_BYTES})); look("stack")
print(set_limit(HEAP, default[HEAP] + 200 * MIB)); look("more_heap")
print(set_limit(HEAP, default[HEAP] + 1)); look("least_heap")
print(set_limit(PRINTF, default[PRINTF] // 2)); look("less_printf")
print(set_limit(STACK, default[STACK])); look("default_stack")
print(set_limit(HEAP, default[HEAP])); look("default_heap")
"""

    looks, codes = walk(part, START + code)

    assert set(codes) == {"0"}
    assert_exact(looks)
    assert looks["heap"].charged_bytes == 100 * MIB
    assert looks["printf"].charged_bytes == 110 * MIB
    profile = machine.devices[0].profile
    threads = profile.sm_count * profile.threads_per_sm
    stack_bytes = looks["stack"].charged_bytes - looks["printf"].charged_bytes
    assert stack_bytes == (STACK_BYTES - 1024) * threads
    assert looks["more_heap"].charged_bytes == 210 * MIB + stack_bytes
    assert looks["default_stack"].charged_bytes == 512
    assert looks["default_heap"] == looks["none"]


def test_a_limit_that_does_not_fit_stays_as_it_was(machine: Machine, slice_of: SliceOf) -> None:
    part = slice_of(machine, memory_bytes=64 * MIB)
    code = """
for which in (HEAP, PRINTF):
    assert set_limit(which, default[which] + 16 * MIB) == 0
    print(set_limit(which, default[which] + 64 * MIB + 512), limit(which) - default[which])
    print(set_limit(which, default[which] + 64 * MIB), free())
    assert set_limit(which, default[which]) == 0
ballast = check(driver.cuMemAlloc(1))
print(set_limit(HEAP, default[HEAP] + 64 * MIB), limit(HEAP) - default[HEAP])
check(driver.cuMemFree(ballast))
print(set_limit(STACK, default[STACK] + 1024), limit(STACK) - default[STACK])
print(set_limit(HEAP, (1 << 64) - 1), limit(HEAP) - default[HEAP], free() >> 20)
"""

    heap_and_printf = ["2", str(16 * MIB), "0", "0"] * 2
    assert part.run(START + code) == [*heap_and_printf, "2", "0", "2", "0", "2", "0", "64"]
    assert part.usage().devices[0].used_bytes == 0


def test_what_the_driver_refuses_is_not_charged(machine: Machine, slice_of: SliceOf) -> None:
    part = slice_of(machine, memory_bytes=1024 * GIB)  # the driver is to judge, not the slice
    code = """
print(set_limit(STACK, 0), set_limit(STACK, 1 << 20), set_limit(HEAP, 1 << 38))
print(set_limit(L.CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH, 3))
look("refused")
check(driver.cuCtxSetCurrent(None)); print(set_limit(HEAP, 1 << 30))
"""

    looks, with_shim = walk(part, START + code)

    assert with_shim == part.run(f"{START}\ndef look(name): pass\n{code}", shim=False)
    assert "0" not in with_shim
    assert looks["refused"].charged_bytes == looks["refused"].taken_bytes == 0


def test_limits_belong_to_their_context_and_end_with_it(
    machine: Machine, slice_of: SliceOf
) -> None:
    part = slice_of(machine, memory_bytes=4 * GIB)
    code = """
set_limit(HEAP, default[HEAP] + 64 * MIB); look("primary")
other = check(create_context()); look("other")
for which in (HEAP, PRINTF): set_limit(which, default[which] + 16 * MIB)
set_limit(STACK, 2 * default[STACK]); look("both")
check(driver.cuCtxDestroy(other)); look("other_ended")
check(driver.cuCtxSetCurrent(context)); print(limit(HEAP) - default[HEAP])
check(driver.cuDevicePrimaryCtxReset(0)); look("reset")
context = open_context(); print(limit(HEAP) - default[HEAP])
set_limit(HEAP, default[HEAP] + 32 * MIB); look("again")
check(driver.cuDevicePrimaryCtxRelease(0)); look("released")
"""

    looks, words = walk(part, START + code)

    assert_exact(looks)
    assert words == [str(64 * MIB), "0"]
    assert looks["both"].charged_bytes > 96 * MIB
    assert looks["other_ended"] == looks["primary"] == looks["other"]
    assert [looks[name].charged_bytes for name in ("reset", "again", "released")] == [
        0,
        32 * MIB,
        0,
    ]


def test_threads_that_set_one_limit_at_once_leave_exact_books(
    machine: Machine, slice_of: SliceOf, compile_program: Compile
) -> None:
    part = slice_of(machine, memory_bytes=1 * GIB)
    machine.set_call_faults(CallFaults(delay_ns=CALL_NS))  # so that threads meet inside
    library = compile_program("shim_context_threads.c", flags=("-shared", "-fPIC"))
    code = """
import ctypes, sys
threads = ctypes.CDLL(sys.argv[1])
for round in range(100):
    threads.set_limits(ctypes.c_void_p(int(context)), 4, 2)
    look(f"round_{round}")
set_limit(HEAP, 1); set_limit(PRINTF, 1); look("none")
"""

    looks, _ = walk(part, START + code, str(library))

    assert_exact(looks)
    assert looks["none"].charged_bytes == 0
