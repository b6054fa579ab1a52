"""Contexts of all kinds under a slice: charged, and returned with what the driver frees."""

from pathlib import Path

import pytest

from libvgpu.sim import Machine
from support.shim.slices import Slice, SliceOf
from support.shim.walk import assert_exact, walk
from support.sim.measured import measured_machine

MIB = 1 << 20
GIB = 1 << 30

START = """
from support.shim.cuda_client import *
from support.shim.cuda_arrays import form
check(driver.cuInit(0))
def free(): return check(driver.cuMemGetInfo())[0]
"""
GREEN = """
SM = driver.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM
whole = check(driver.cuDeviceGetDevResource(0, SM))
described = check(driver.cuDevResourceGenerateDesc([whole], 1))
def green(): return driver.cuGreenCtxCreate(described, 0, 1)
"""


@pytest.fixture
def part(costly_machine: Machine, slice_of: SliceOf) -> Slice:
    return slice_of(costly_machine, memory_bytes=4 * GIB)


def test_a_green_context_is_charged_beside_the_primary_one_it_retains(
    costly_machine: Machine, part: Slice
) -> None:
    cost = costly_machine.devices[0].profile.context_bytes
    code = """
look("none")
first = check(green()); look("green_alone")
second = check(green()); look("two_green")
check(driver.cuGreenCtxDestroy(first)); look("one_green")
open_context(); look("primary_too")
check(driver.cuGreenCtxDestroy(second)); look("primary_alone")
third = check(green()); look("green_on_top")
check(driver.cuDevicePrimaryCtxRelease(0)); look("released_but_held")
check(driver.cuGreenCtxDestroy(third)); look("end")
"""

    looks, _ = walk(part, START + GREEN + code)

    assert_exact(looks)
    count = {name: look.charged_bytes / cost for name, look in looks.items()}
    assert list(count.values()) == [0, 2, 3, 2, 2, 1, 2, 2, 0]


def test_a_green_context_that_does_not_fit_leaves_everything_as_it_was(
    costly_machine: Machine, slice_of: SliceOf
) -> None:
    cost = costly_machine.devices[0].profile.context_bytes
    part = slice_of(costly_machine, memory_bytes=2 * cost)
    code = """
open_context(); ballast = check(driver.cuMemAlloc(1))
print(int(green()[0])); look("refused")
check(driver.cuMemFree(ballast)); one = check(green()); look("fits")
print(int(green()[0]))
check(driver.cuGreenCtxDestroy(one))
check(driver.cuDevicePrimaryCtxReset(0)); look("reset")
other = check(create_context())
print(int(green()[0])); look("refused_with_a_primary")
print(check(driver.cuDevicePrimaryCtxGetState(0))[1])
print(int(driver.cuGreenCtxCreate(described, 1, 1)[0]), int(driver.cuGreenCtxDestroy(0)[0]))
"""

    looks, words = walk(part, START + GREEN + code)

    assert words[:4] == ["2", "2", "2", "0"]
    assert "0" not in words[4:]
    assert looks["refused"].charged_bytes == cost + 512  # one byte asked for, no green context
    assert looks["fits"].charged_bytes == looks["fits"].taken_bytes == 2 * cost
    assert looks["reset"].charged_bytes == 0
    assert looks["refused_with_a_primary"].charged_bytes == cost


def test_what_was_allocated_in_a_green_context_is_returned_when_the_driver_frees_it(
    part: Slice,
) -> None:
    code = """
primary = open_context(); look("primary")
made = check(green())
check(driver.cuCtxPushCurrent(check(driver.cuCtxFromGreenCtx(made))))
check(driver.cuMemAlloc(100 * MIB)); check(driver.cuMemAlloc(MIB)); look("allocated")
check(driver.cuCtxPopCurrent()); check(driver.cuGreenCtxDestroy(made)); look("ended")
made = check(green())
check(driver.cuCtxPushCurrent(check(driver.cuCtxFromGreenCtx(made))))
check(driver.cuArray3DCreate(form(1000, 1000)))
check(driver.cuCtxPopCurrent()); check(driver.cuGreenCtxDestroy(made)); look("array")
check(driver.cuDevicePrimaryCtxRelease(0)); look("end")
"""

    looks, _ = walk(part, START + GREEN + code)

    array = looks.pop("array")
    assert_exact(looks)
    assert looks["ended"] == looks["primary"]
    # Nobody can be asked whether an array lives: it stays charged as long as it might.
    assert array.charged_bytes > array.taken_bytes == looks["primary"].taken_bytes
    assert looks["end"].charged_bytes == 0


def test_a_context_ends_with_its_last_reference(costly_machine: Machine, slice_of: SliceOf) -> None:
    part = slice_of(costly_machine, memory_bytes=2 * GIB)
    code = """
import ctypes
old = ctypes.CDLL("libcuda.so.1")
context, same = ctypes.c_void_p(), ctypes.c_void_p()
assert old.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
check(driver.cuMemAlloc(100 * MIB)); look("made")
assert old.cuCtxAttach(ctypes.byref(same), 0) == 0 and same.value == context.value
assert old.cuCtxDetach(context) == 0; look("referred_to")
print(old.cuCtxDetach(ctypes.c_void_p(12345)))
assert old.cuCtxDetach(context) == 0; look("ended")
print(old.cuCtxDetach(context))
"""

    looks, words = walk(part, START + code)

    assert_exact(looks)
    assert looks["referred_to"] == looks["made"]
    assert looks["ended"].charged_bytes == 0
    assert "0" not in words


KINDS = """
from support.shim.cuda_arrays import form
HEAP = driver.CUlimit.CU_LIMIT_MALLOC_HEAP_SIZE
def take_all():
    check(driver.cuMemAlloc(10 * MIB)); check(driver.cuMemAllocPitch(1000, 1000, 4))
    check(driver.cuMemAllocManaged(20 * MIB, 1))
    check(driver.cuArray3DCreate(form(1000, 1000)))
    check(driver.cuMipmappedArrayCreate(form(99), 3))
    check(driver.cuCtxSetLimit(HEAP, 100 * MIB))
"""


@pytest.mark.parametrize("end", ["Release", "Reset"])
def test_a_primary_context_returns_exactly_what_the_driver_frees(end: str, part: Slice) -> None:
    code = f"""
for i in range(2):
    open_context(); take_all(); look(f"taken_{{i}}")
    pooled = check(driver.cuMemAllocAsync(30 * MIB, 0)); look(f"pooled_{{i}}")
    check(driver.cuDevicePrimaryCtx{end}(0)); look(f"ended_{{i}}")
    open_context(); take_all(); check(driver.cuMemFreeAsync(pooled, 0))
    check(driver.cuCtxSynchronize()); look(f"freed_{{i}}")
    check(driver.cuDevicePrimaryCtx{end}(0))
"""

    looks, _ = walk(part, START + KINDS + code)

    assert_exact(looks)
    assert looks["ended_0"] == looks["ended_1"]
    assert looks["ended_0"].charged_bytes == 30 * MIB  # of the pool, which is no context's
    assert looks["freed_0"] == looks["taken_0"]


def test_a_created_context_returns_exactly_what_the_driver_frees(part: Slice) -> None:
    code = """
open_context(); take_all(); look("primary")
for _ in range(3):
    created = check(create_context()); take_all(); look("both")
    check(driver.cuCtxDestroy(created)); look("ended")
"""

    looks, _ = walk(part, START + KINDS + code)

    assert_exact(looks)
    assert looks["ended"] == looks["primary"]


def test_threads_that_retain_and_release_at_once_leave_exact_books(
    costly_machine: Machine, slice_of: SliceOf
) -> None:
    part = slice_of(costly_machine, memory_bytes=8 * GIB)
    code = """
import random, threading
def some(seed):
    dice = random.Random(seed)
    for _ in range(60):
        if dice.random() < 0.6:
            check(driver.cuDevicePrimaryCtxRetain(0)); check(driver.cuDevicePrimaryCtxRelease(0))
        elif dice.random() < 0.5:
            check(driver.cuCtxDestroy(check(create_context())))
        else:
            check(driver.cuGreenCtxDestroy(check(green())))
threads = [threading.Thread(target=some, args=(i,)) for i in range(6)]
for thread in threads: thread.start()
for thread in threads: thread.join()
look("end")
"""

    looks, _ = walk(part, START + GREEN + code)

    assert looks["end"].charged_bytes == looks["end"].taken_bytes == 0


def test_a_green_context_is_charged_for_what_it_takes(slice_of: SliceOf, tmp_path: Path) -> None:
    machine = measured_machine(tmp_path)
    part = slice_of(machine, memory_bytes=2 * GIB)
    code = """
open_context(); look("primary")
made = [check(green())]
ballast = check(driver.cuMemAlloc(1500 * MIB))
made += [check(green()) for _ in range(2)]
check(driver.cuMemFree(ballast)); look("three_green")
for each in made: check(driver.cuGreenCtxDestroy(each))
look("ended")
"""

    looks, _ = walk(part, START + GREEN + code)

    assert_exact(looks)
    three = looks["three_green"].charged_bytes - looks["primary"].charged_bytes
    assert three == 3 * 4 * MIB
    assert looks["ended"] == looks["primary"]
