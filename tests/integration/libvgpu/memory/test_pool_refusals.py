"""What a pool was refused stays charged nowhere, although the driver had to be asked for it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from libvgpu.sim import PROFILES, Machine
from support.shim.slices import Slice, SliceOf
from support.sim.driver import driver_version
from support.waiting import PATIENCE_S

MIB = 1 << 20
#: Less a context or two, which is no whole number of the driver's steps.
LIMIT = 2048 * MIB

START = """
import ctypes, json, os, subprocess, sys
from ctypes import byref, c_uint64, c_void_p
from pathlib import Path
from libvgpu.region import read_usage
from support.shim.both_books import agree
from support.shim.cuda_client import *
open_context()
symbols = ctypes.CDLL("libcuda.so.1")
stream = check(driver.cuStreamCreate(1))
usleep = ctypes.cast(ctypes.CDLL(None).usleep, ctypes.c_void_p).value
standard = check(driver.cuDeviceGetDefaultMemPool(0))
THRESHOLD = driver.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
def make_pool(handle_types=0):
    properties = driver.CUmemPoolProps()
    properties.allocType = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.handleTypes = driver.CUmemAllocationHandleType(handle_types)
    properties.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    return check(driver.cuMemPoolCreate(properties))
def keep_all(pool):
    check(driver.cuMemPoolSetAttribute(pool, THRESHOLD, driver.cuuint64_t(1 << 60)))
    return pool
def refused():
    return sum(each.devices[0].refused_count
               for each in read_usage(Path(os.environ["VGPU_DIR"])).processes)
def free():
    return check(driver.cuMemGetInfo())[0]
def twin(bytes, pool=None):
    address = c_uint64()
    if pool is None:
        return [symbols.cuMemAllocAsync_ptsz(byref(address), c_uint64(bytes), None)]
    return [symbols.cuMemAllocFromPoolAsync_ptsz(byref(address), c_uint64(bytes),
                                                 c_void_p(int(pool)), None)]
def alloc(bytes): return driver.cuMemAllocAsync(bytes, stream)
def from_pool(pool): return lambda bytes: driver.cuMemAllocFromPoolAsync(bytes, pool, stream)
def of_current(pool):
    def allocate(bytes):
        check(driver.cuDeviceSetMemPool(0, pool))
        answer = driver.cuMemAllocAsync(bytes, stream)
        check(driver.cuDeviceSetMemPool(0, standard))
        return answer
    return allocate
def in_graph(bytes):
    mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
    check(driver.cuStreamBeginCapture(stream, mode))
    more = bytes + 512  # graphs have no steps here
    check(driver.cuMemFreeAsync(check(driver.cuMemAllocAsync(more, stream)), stream))
    exec = check(driver.cuGraphInstantiate(check(driver.cuStreamEndCapture(stream)), 0))
    answer = driver.cuGraphLaunch(exec, stream)
    check(driver.cuGraphExecDestroy(exec))
    return answer
"""
#: How a pool can be asked, in the terms of `START`.
FORMS = {
    "alloc": "alloc",
    "alloc, per-thread": "twin",
    "default pool": "from_pool(standard)",
    "own pool": "from_pool(make_pool())",
    "own pool, per-thread": "lambda bytes, pool=make_pool(): twin(bytes, pool)",
    "own pool that keeps": "from_pool(keep_all(make_pool()))",
    "own pool, current": "of_current(make_pool())",
    "shareable pool": "from_pool(make_pool(1))",
    "graph": "in_graph",
}


@pytest.fixture
def part(tmp_path: Path, slice_of: SliceOf) -> Slice:
    profile = PROFILES["h100-80g"]
    calibration = replace(profile.calibration, pool_granule_bytes=32 * MIB)
    machine = Machine.create(
        [replace(profile, calibration=calibration)], tmp_path / "machine", driver_version()
    )
    return slice_of(machine, memory_bytes=LIMIT)


def told(part: Slice, code: str, *arguments: str) -> tuple[Any, list[str]]:
    """Returns the JSON that a program printed, and its lines on stderr."""
    process = part.start(START + code, *arguments)
    stdout, stderr = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, stderr
    return json.loads(stdout), stderr.splitlines()


@pytest.mark.parametrize("form", FORMS)
def test_a_refusal_leaves_nothing_charged_and_is_told(part: Slice, form: str) -> None:
    """The first time the driver's steps are unknown, so it is asked. Then the rest is anyone's."""
    answer, said = told(
        part,
        f"""
allocate = {FORMS[form]}
before, seen = agree(), []
for _ in range(2):
    seen.append([code(allocate(free())), agree() - before, refused()])
peer = subprocess.run([sys.executable, "-c", sys.argv[1]], stdout=subprocess.PIPE, check=True)
print(json.dumps([seen, json.loads(peer.stdout)]))
""",
        START + "print(json.dumps([code(driver.cuMemAlloc(free())), free()]))",
    )

    assert answer == [[[2, 0, 1], [2, 0, 2]], [0, 0]]
    assert len([line for line in said if "MiB (async) asked on GPU" in line]) == len(said) > 0


def test_a_refusal_behind_busy_work_is_given_back_with_the_next_wait(part: Slice) -> None:
    """Also by a pool that is told to keep what it has."""
    code = """
seen = []
for pool in (keep_all(make_pool()), make_pool()):
    before = agree()
    check(driver.cuLaunchHostFunc(stream, usleep, 300_000))
    refusal = code(from_pool(pool)(free()))
    held = agree()
    check(driver.cuStreamSynchronize(stream))
    seen.append([refusal, held > before, agree() - before])
print(json.dumps(seen))
"""
    answer, _ = told(part, code)

    assert answer == [[2, True, 0], [2, True, 0]]


@pytest.mark.parametrize("more_mib", [0, 480])
def test_what_pools_keep_idle_makes_room_first(part: Slice, more_mib: int) -> None:
    """Also where it is the driver's last step that does not fit."""
    answer, _ = told(
        part,
        f"""
kept, other = keep_all(make_pool()), make_pool()
before = agree()
check(driver.cuMemFreeAsync(check(from_pool(kept)(512 * MIB)), stream))
check(driver.cuStreamSynchronize(stream))
idle = agree() - before
asked = free() + {more_mib} * MIB - 20 * MIB
print(json.dumps([idle, code(from_pool(other)(asked)), agree() - before - asked, refused()]))
""",
    )

    idle, code, beyond, refused = answer
    assert (idle, code, refused) == (512 * MIB, 0, 0)
    assert 0 < beyond < 32 * MIB
