"""Stream-ordered memory under a slice: pools are charged for what they keep."""

import pytest

from libvgpu.sim import Machine
from support.shim.slices import Slice, SliceOf

MIB = 1 << 20
LIMIT = 64 * MIB
START = """
import ctypes
from support.shim.cuda_client import *
from support.shim.both_books import agree, device_bytes, ledger_bytes
open_context()
stream = check(driver.cuStreamCreate(0))
def allocate(bytes, pool=None):
    if pool is None:
        return driver.cuMemAllocAsync(bytes, stream)
    return driver.cuMemAllocFromPoolAsync(bytes, pool, stream)
def make_pool(kind=None, where=0):
    properties = driver.CUmemPoolProps()
    properties.allocType = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    location = driver.CUmemLocationType
    properties.location.type = kind or location.CU_MEM_LOCATION_TYPE_DEVICE
    properties.location.id = where
    return check(driver.cuMemPoolCreate(properties))
def keep_all(pool):
    attribute = driver.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
    check(driver.cuMemPoolSetAttribute(pool, attribute, driver.cuuint64_t(1 << 60)))
"""


@pytest.fixture
def part(machine: Machine, slice_of: SliceOf) -> Slice:
    return slice_of(machine, memory_bytes=LIMIT)


def test_what_a_pool_keeps_stays_charged_until_the_driver_gives_it_back(part: Slice) -> None:
    code = """
address = check(allocate(10 * MIB + 1))
print(agree())
check(driver.cuMemFreeAsync(address, stream))
print(agree())
check(driver.cuStreamSynchronize(stream))
print(agree())
keep_all(check(driver.cuDeviceGetMemPool(0)))
address = check(allocate(20 * MIB))
check(driver.cuMemFree(address))
check(driver.cuCtxSynchronize())
print(agree())
check(driver.cuMemPoolTrimTo(check(driver.cuDeviceGetMemPool(0)), 5 * MIB))
print(agree())
"""
    words = part.run(START + code)

    first = 10 * MIB + 512
    assert words == [str(n) for n in (first, first, 0, 20 * MIB, 5 * MIB)]


def test_a_full_slice_is_served_from_what_its_pools_keep(part: Slice) -> None:
    code = f"""
keep_all(check(driver.cuDeviceGetMemPool(0)))
pieces = [check(allocate(16 * MIB)) for _ in range(4)]
print(agree(), int(allocate(1)[0]))
for piece in pieces[:2]:
    check(driver.cuMemFreeAsync(piece, stream))
check(driver.cuStreamSynchronize(stream))
print(agree())
again = check(allocate(24 * MIB))        # out of what is kept
print(agree())
plain = check(driver.cuMemAlloc(8 * MIB))  # what the pool keeps unused makes room
print(agree(), int(driver.cuMemAlloc(1)[0]), int(allocate(1)[0]))
check(driver.cuMemFree(plain))
print(agree(), {LIMIT})
"""
    words = part.run(START + code)

    full = str(LIMIT)
    left = str(LIMIT - 8 * MIB)
    assert words == [full, "2", full, full, full, "2", "2", left, full]


def test_explicit_pools_are_charged_where_their_memory_is(part: Slice) -> None:
    code = """
pool = make_pool()
keep_all(pool)
pieces = [check(allocate(4 * MIB, pool)) for _ in range(3)]
check(driver.cuMemFreeAsync(pieces.pop(), stream))
check(driver.cuStreamSynchronize(stream))
print(agree())
host = make_pool(driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_HOST)
check(allocate(256 * MIB, host))
print(agree())
check(driver.cuMemPoolDestroy(pool))     # what is in use lives on
print(agree())
check(driver.cuMemFreeAsync(pieces.pop(), stream))
check(driver.cuStreamSynchronize(stream))
print(agree())
check(driver.cuMemFree(pieces.pop()))
print(agree())
"""
    assert part.run(START + code) == [str(n * MIB) for n in (12, 12, 8, 4, 0)]


def test_a_refused_allocation_changes_nothing_and_an_exact_one_fits(part: Slice) -> None:
    code = f"""
print(int(allocate({LIMIT} + 1)[0]), agree())
pool = make_pool()
print(int(allocate({LIMIT} + 1, pool)[0]), agree())
address = check(allocate({LIMIT}, pool))
print(agree(), int(allocate(1)[0]), agree())
check(driver.cuMemFree(address))
print(int(allocate({LIMIT})[0]), agree())
"""
    words = part.run(START + code)

    full = str(LIMIT)
    assert words == ["2", "0", "2", "0", full, "2", full, "0", full]


def test_the_pools_of_a_context_that_was_reset_keep_what_they_hold(part: Slice) -> None:
    code = """
address = check(allocate(8 * MIB))
plain = check(driver.cuMemAlloc(4 * MIB))
print(agree())
check(driver.cuDevicePrimaryCtxReset(0))
print(agree())
"""
    assert part.run(START + code) == [str(12 * MIB), str(8 * MIB)]


def test_allocations_on_a_captured_stream_take_nothing_yet(part: Slice) -> None:
    code = """
mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
check(driver.cuStreamBeginCapture(stream, mode))
address = check(allocate(8 * MIB))
check(driver.cuMemFreeAsync(address, stream))
graph = check(driver.cuStreamEndCapture(stream))
print(agree(), int(driver.cuMemAlloc(64 * MIB)[0]))
"""
    assert part.run(START + code) == ["0", "0"]


def test_threads_share_a_pool_without_losing_a_byte(part: Slice) -> None:
    code = """
import random, threading
pools = [None, make_pool(), make_pool()]
keep_all(pools[2])
context = check(driver.cuCtxGetCurrent())
over = []
def work(seed):
    check(driver.cuCtxSetCurrent(context))
    own = check(driver.cuStreamCreate(0))
    dice = random.Random(seed)
    held = []
    steps = 0
    while steps < 400 or len(over) <= 10:  # somebody has looked meanwhile
        steps += 1
        if held and dice.random() < 0.5:
            free = driver.cuMemFreeAsync if dice.random() < 0.8 else None
            address = held.pop(dice.randrange(len(held)))
            check(driver.cuMemFreeAsync(address, own) if free else driver.cuMemFree(address))
        else:
            pool, bytes = dice.choice(pools), dice.randrange(1, 4 * MIB)
            answer = (driver.cuMemAllocAsync(bytes, own) if pool is None
                      else driver.cuMemAllocFromPoolAsync(bytes, pool, own))
            if int(answer[0]) == 0:
                held.append(answer[1])
        if dice.random() < 0.1:
            check(driver.cuStreamSynchronize(own))
    for address in held:
        check(driver.cuMemFreeAsync(address, own))
threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
watching = True
def watch():
    while watching:
        over.append(device_bytes() > 64 * MIB)
watcher = threading.Thread(target=watch)
watcher.start()
for thread in threads: thread.start()
for thread in threads: thread.join()
watching = False
watcher.join()
check(driver.cuCtxSynchronize())
print(agree() - ledger_bytes(), sum(over), len(over) > 10)
check(driver.cuMemPoolTrimTo(pools[2], 0))
print(agree())
"""
    assert part.run(START + code) == ["0", "0", "True", "0"]


def test_a_handle_that_is_no_pool_is_charged_nothing(part: Slice) -> None:
    code = f"""
pool = make_pool()
check(driver.cuMemPoolDestroy(pool))
for _ in range(3):
    print(int(allocate(40 * MIB, pool)[0]), agree())
pools = [make_pool() for _ in range(2)]  # one of them has the handle again
print(*(int(allocate({LIMIT} // 2, each)[0]) for each in pools), agree())
"""
    assert part.run(START + code) == ["1", "0"] * 3 + ["0", "0", str(LIMIT)]


LATE = """
usleep = ctypes.cast(ctypes.CDLL(None).usleep, ctypes.c_void_p).value
other = check(driver.cuStreamCreate(1))
def be_late(milliseconds):
    check(driver.cuLaunchHostFunc(stream, usleep, milliseconds * 1000))
"""


def test_a_free_that_waits_for_its_turn_makes_no_room(machine: Machine, part: Slice) -> None:
    code = f"""
keep_all(check(driver.cuDeviceGetMemPool(0)))
address = check(allocate({LIMIT}))
be_late(300)
check(driver.cuMemFreeAsync(address, stream))
print(int(driver.cuMemAllocAsync({LIMIT}, other)[0]), agree())
check(driver.cuStreamSynchronize(stream))
print(int(driver.cuMemAllocAsync({LIMIT}, other)[0]), agree())
"""
    words = part.run(START + LATE + code)

    assert words == ["2", str(LIMIT), "0", str(LIMIT)]
    assert machine.books()[0].memory_peak_bytes == LIMIT


def test_a_late_free_of_a_pool_that_was_destroyed_stays_charged_until_it_is_done(
    machine: Machine, part: Slice
) -> None:
    code = f"""
pool = make_pool()
address = check(allocate({LIMIT}, pool))
check(driver.cuMemPoolDestroy(pool))
be_late(300)
check(driver.cuMemFreeAsync(address, stream))
print(int(driver.cuMemAlloc({LIMIT})[0]), agree())
check(driver.cuStreamSynchronize(stream))
print(int(driver.cuMemAlloc({LIMIT})[0]), agree())
"""
    words = part.run(START + LATE + code)

    assert words == ["2", str(LIMIT), "0", str(LIMIT)]
    assert machine.books()[0].memory_peak_bytes == LIMIT


def test_a_free_is_looked_for_after_every_wait_until_it_is_done(part: Slice) -> None:
    code = """
address = check(allocate(8 * MIB))
be_late(200)
check(driver.cuMemFreeAsync(address, stream))
check(driver.cuStreamSynchronize(other))
print(agree())
check(driver.cuStreamSynchronize(stream))
print(agree())
"""
    assert part.run(START + LATE + code) == [str(8 * MIB), "0"]


def test_the_gpus_pool_may_change_and_end_while_others_allocate(
    machine: Machine, part: Slice
) -> None:
    code = """
import random, threading
context = check(driver.cuCtxGetCurrent())
standard = check(driver.cuDeviceGetDefaultMemPool(0))
keep_all(standard)
def change():
    check(driver.cuCtxSetCurrent(context))
    for _ in range(60):
        pool = make_pool()
        keep_all(pool)
        check(driver.cuDeviceSetMemPool(0, pool))
        check(driver.cuDeviceSetMemPool(0, standard))
        check(driver.cuDeviceSetMemPool(0, pool))
        check(driver.cuMemPoolDestroy(pool))
    check(driver.cuDeviceSetMemPool(0, standard))
def work(seed, held):
    check(driver.cuCtxSetCurrent(context))
    own = check(driver.cuStreamCreate(0))
    dice = random.Random(seed)
    for _ in range(1500):
        if held and dice.random() < 0.5:
            check(driver.cuMemFreeAsync(held.pop(), own))
        else:
            answer = driver.cuMemAllocAsync(dice.randrange(1, 4 * MIB), own)
            if int(answer[0]) == 0:
                held.append(answer[1])
left = [[] for _ in range(4)]
threads = [threading.Thread(target=work, args=(seed, left[seed])) for seed in range(4)]
threads.append(threading.Thread(target=change))
for thread in threads: thread.start()
for thread in threads: thread.join()
check(driver.cuCtxSynchronize())
check(driver.cuMemPoolTrimTo(standard, 0))
print(agree() > 0)
for address in sum(left, []):
    check(driver.cuMemFree(address))
check(driver.cuMemPoolTrimTo(standard, 0))
print(agree())
"""
    words = part.run(START + code)

    assert words == ["True", "0"]
    assert machine.books()[0].memory_peak_bytes <= LIMIT
