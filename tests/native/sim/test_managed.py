"""Managed and registered memory of the simulated GPU: advice, prefetches, attributes."""

import mmap

from libvgpu.sim import Machine
from support.sim.programs import run, said_in

MANAGED = """
open_context()
PAGE = 4096
places, advices, ranges = cuda.CUmemLocationType, cuda.CUmem_advise, cuda.CUmem_range_attribute
def location(kind, number=0):
    wanted = cuda.CUmemLocation()
    wanted.type = getattr(places, "CU_MEM_LOCATION_TYPE_" + kind)
    wanted.id = number
    return wanted
GPU, HOST = location("DEVICE"), location("HOST")
def advise(what, address, pages, place=GPU):
    return code(cuda.cuMemAdvise(address, pages * PAGE, getattr(advices, "CU_MEM_ADVISE_" + what), place))
def ask(what, address, pages, size=4):
    value = check(cuda.cuMemRangeGetAttribute(
        size, getattr(ranges, "CU_MEM_RANGE_ATTRIBUTE_" + what), address, pages * PAGE))
    return value if isinstance(value, list) else int(value)
def prefetch(address, pages, place, stream=0):
    return code(cuda.cuMemPrefetchAsync(address, pages * PAGE, place, 0, stream))
memory = int(check(cuda.cuMemAllocManaged(8 * PAGE, 1)))
"""  # noqa: E501


def test_advice_holds_for_the_pages_that_it_was_given_for(machine: Machine) -> None:
    code = """
advise("SET_READ_MOSTLY", memory + 2 * PAGE + 5, 2)  # touches three pages
def mostly(first, pages): return ask("READ_MOSTLY", memory + first * PAGE, pages)
seen = [mostly(0, 8), mostly(2, 3), mostly(1, 2), mostly(4, 2), mostly(5, 1)]
advise("UNSET_READ_MOSTLY", memory + 3 * PAGE, 1)
seen += [mostly(2, 3), mostly(2, 1), mostly(4, 1), mostly(3, 1)]
say(seen=seen)
"""
    assert said_in(machine, MANAGED + code) == {"seen": [0, 1, 0, 0, 0, 0, 1, 1, 0]}


def test_locations_are_told_where_all_pages_agree(machine: Machine) -> None:
    code = """
where = lambda first, pages: ask("PREFERRED_LOCATION", memory + first * PAGE, pages)
seen = [where(0, 8)]
advise("SET_PREFERRED_LOCATION", memory, 4)
advise("SET_PREFERRED_LOCATION", memory + 4 * PAGE, 4, HOST)
seen += [where(0, 4), where(4, 4), where(0, 8), ask("PREFERRED_LOCATION_TYPE", memory, 4),
         ask("PREFERRED_LOCATION_TYPE", memory + 4 * PAGE, 4),
         ask("PREFERRED_LOCATION_TYPE", memory, 8)]
advise("UNSET_PREFERRED_LOCATION", memory, 8)
say(seen=seen + [where(0, 1), where(7, 1)])
"""
    assert said_in(machine, MANAGED + code) == {"seen": [-2, 0, -1, -2, 1, 2, 0, -2, -2]}


def test_accessors_are_listed_and_the_rest_is_filled_up(machine: Machine) -> None:
    code = """
advise("SET_ACCESSED_BY", memory, 8)
advise("SET_ACCESSED_BY", memory, 4, HOST)
seen = [ask("ACCESSED_BY", memory, 4, 12), ask("ACCESSED_BY", memory, 8, 8)]
advise("UNSET_ACCESSED_BY", memory, 1)
say(seen=seen + [ask("ACCESSED_BY", memory, 4, 8), ask("ACCESSED_BY", memory, 8, 4)])
"""
    assert said_in(machine, MANAGED + code) == {"seen": [[-1, 0, -2], [0, -2], [-1, -2], [-2]]}


def test_a_prefetch_is_remembered_and_takes_its_transfer(machine: Machine) -> None:
    code = """
large = int(check(cuda.cuMemAllocManaged(1 << 30, 1)))
stream = check(cuda.cuStreamCreate(0))
started = time.monotonic()
seen = [prefetch(large, (1 << 30) // PAGE, GPU, stream), code(cuda.cuStreamQuery(stream))]
check(cuda.cuStreamSynchronize(stream))
took = time.monotonic() - started
seen += [ask("LAST_PREFETCH_LOCATION", large, 9), prefetch(large, 1, HOST),
         ask("LAST_PREFETCH_LOCATION", large, 1), ask("LAST_PREFETCH_LOCATION", large, 2)]
say(seen=seen, took=took > 0.01)
"""
    assert said_in(machine, MANAGED + code) == {"seen": [0, 600, 0, 0, -1, -2], "took": True}


def test_a_prefetch_is_no_part_of_a_capture(machine: Machine) -> None:
    code = """
stream = check(cuda.cuStreamCreate(0))
check(cuda.cuStreamBeginCapture(
    stream, cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
say(code=prefetch(memory, 1, GPU, stream), told=ask("LAST_PREFETCH_LOCATION", memory, 1))
"""
    assert said_in(machine, MANAGED + code) == {"code": 900, "told": -2}


def test_calls_about_what_is_not_managed_are_refused(machine: Machine) -> None:
    code = """
plain = int(check(cuda.cuMemAlloc(8 * PAGE)))
same([advise("SET_READ_MOSTLY", plain, 1), prefetch(plain, 1, GPU)], [1, 1])
same([advise("SET_READ_MOSTLY", memory, 9), prefetch(memory + PAGE, 8, GPU)], [1, 1])
same([prefetch(memory, 1, location("DEVICE", 5)),
      advise("SET_PREFERRED_LOCATION", memory, 1, location("DEVICE", 5))], [101, 101])
same([prefetch(memory, 1, location("INVALID")),
      advise("SET_ACCESSED_BY", memory, 1, location("HOST_NUMA"))], [1, 1])
same(code(cuda.cuMemRangeGetAttribute(3, ranges.CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, memory, 9)), 1)
same(advise("SET_READ_MOSTLY", memory, 0), 1)
"""
    run(machine, MANAGED + code)


def test_batches_prefetch_each_range_to_its_place(machine: Machine) -> None:
    code = """
stream = check(cuda.cuStreamCreate(0))
pieces = [cuda.CUdeviceptr(memory + i * PAGE) for i in range(3)]
def batch(call, *rest, stream=stream):
    return code(call(pieces, [PAGE] * 3, 3, *rest, 0, stream))
places = [GPU, HOST]
seen = [batch(cuda.cuMemPrefetchBatchAsync, places, [0, 2], 2)]
seen += [ask("LAST_PREFETCH_LOCATION", int(piece), 1) for piece in pieces]
seen += [batch(cuda.cuMemPrefetchBatchAsync, places, [0, 0], 2),
         batch(cuda.cuMemPrefetchBatchAsync, places, [1, 2], 2),
         batch(cuda.cuMemDiscardBatchAsync), batch(cuda.cuMemDiscardBatchAsync, stream=0),
         batch(cuda.cuMemDiscardAndPrefetchBatchAsync, places, [0, 1], 2)]
say(seen=seen, last=ask("LAST_PREFETCH_LOCATION", int(pieces[1]), 1))
"""
    assert said_in(machine, MANAGED + code) == {"seen": [0, 0, 0, -1, 1, 1, 0, 1, 0], "last": -1}


def test_memory_is_attached_to_streams_as_a_whole(machine: Machine) -> None:
    code = """
stream = check(cuda.cuStreamCreate(0))
def attach(size, flags, stream=stream, address=memory):
    return code(cuda.cuStreamAttachMemAsync(stream, address, size, flags))
same([attach(0, 4), attach(8 * PAGE, 2), attach(0, 1, 0)], [0, 0, 0])
same(attach(PAGE, 1), 1)
same(attach(0, 4, 0), 1)
same(attach(0, 3), 1)
same(attach(0, 1, stream, memory + PAGE), 1)
"""
    run(machine, MANAGED + code)


def test_only_mapped_memory_is_registered_and_once(machine: Machine) -> None:
    assert mmap.PAGESIZE == 4096
    code = """
import mmap
area = mmap.mmap(-1, 4 * PAGE)
address = ctypes.addressof(ctypes.c_char.from_buffer(area))
register = lambda address, size, flags=0: code(cuda.cuMemHostRegister(address, size, flags))
seen = [register(address, 4 * PAGE), register(address + PAGE, 10)]
given = check(cuda.cuMemHostAlloc(PAGE, 4))
seen += [code(cuda.cuMemHostUnregister(given)), code(cuda.cuMemHostUnregister(address)),
         code(cuda.cuMemHostUnregister(address)), register(4096, PAGE), register(address, 10, 64)]
same(seen, [0, 712, 713, 0, 713, 1, 1])
same(int(check(cuda.cuMemHostGetFlags(given))), 7)
same(code(cuda.cuMemFreeHost(given)), 0)
"""
    run(machine, MANAGED + code)


def test_pointers_tell_what_they_point_to(machine: Machine) -> None:
    code = """
names = cuda.CUpointer_attribute
def ask(name, address):
    answer = cuda.cuPointerGetAttribute(getattr(names, "CU_POINTER_ATTRIBUTE_" + name), address)
    return int(answer[1]) if int(answer[0]) == 0 else -int(answer[0])
plain, pooled = check(cuda.cuMemAlloc(PAGE)), check(cuda.cuMemAllocAsync(PAGE, 0))
host = check(cuda.cuMemHostAlloc(PAGE, 0))
kinds = [ask("MEMORY_TYPE", each) for each in (plain, pooled, memory, host)]
legacy = [ask("IS_LEGACY_CUDA_IPC_CAPABLE", each) for each in (plain, pooled, memory, host)]
sync = [ask("SYNC_MEMOPS", plain)]
sync.append(code(cuda.cuPointerSetAttribute(True, names.CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, plain)))
sync.append(ask("SYNC_MEMOPS", plain))
context = [ask("CONTEXT", each) != 0 for each in (plain, pooled)]
say(kinds=kinds, legacy=legacy, sync=sync, context=context, unknown=ask("MEMORY_TYPE", 12345),
    host=[ask("HOST_POINTER", plain), ask("HOST_POINTER", memory) == memory],
    set_other=code(cuda.cuPointerSetAttribute(1, names.CU_POINTER_ATTRIBUTE_MAPPED, plain)))
"""
    said = said_in(machine, MANAGED + code)

    assert said["kinds"] == [2, 2, 2, 1]
    assert said["legacy"] == [1, 0, 0, 0]
    assert said["sync"] == [0, 0, 1]
    assert said["context"] == [True, False]
    assert said["unknown"] == -1
    assert said["host"] == [-1, True]
