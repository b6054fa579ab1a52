"""Memory of handles that is bound to multicast objects or mapped into sparse arrays."""

from libvgpu.sim import Machine
from support.shim.slices import Slice, SliceOf
from support.shim.vmm_programs import MULTICAST, SPARSE, VMM

GIB = 1 << 30


def ran(part: Slice, code: str) -> list[int]:
    return [int(word) for word in part.run(VMM + code)]


def test_memory_bound_to_a_multicast_object_stays_charged(
    two_gpus: Machine, slice_of: SliceOf
) -> None:
    part = slice_of(two_gpus, memory_bytes=GIB)
    code = """
group, one, other, place = team(), create(GRANULE), create(GRANULE), reserve(4 * GRANULE)
map_at(place, other, GRANULE)
print(used(), bind(group, 0, one), bind_address(group, GRANULE, place), bind(group, 99, one))
print(release(one), release(other), unmap(place, GRANULE), used(), unbind(group, 0), used())
print(map_at(place, group, 4 * GRANULE), release(group), used(), unmap(place, 4 * GRANULE), used())
"""
    assert ran(part, MULTICAST + code) == [4, 0, 0, 1, 0, 0, 0, 4, 0, 2, 0, 0, 2, 0, 0]


def test_memory_in_a_sparse_array_stays_charged_until_its_region_is_unmapped(part: Slice) -> None:
    code = """
array, one, other = sparse(), pool(), pool()
print(apply(tile(array, 0, one), tile(array, 1, other)), apply(tile(array, 9, one)))
print(release(one), release(other), used(), apply(tile(array, 0)), used())
many = [tile(array, x % 4, pool()) for x in range(20)]
print(apply(*many), used())
for each in many: release(each.memHandle.memHandle)
print(used(), apply(*(tile(array, x) for x in range(4))), used())
"""
    assert ran(part, SPARSE + code) == [0, 1, 0, 0, 4, 0, 2, 0, 42, 42, 0, 0]


def test_the_second_tile_of_a_tail_is_returned_when_it_is_unmapped(part: Slice) -> None:
    code = """
def tail(*of):
    made = tile(*of)
    made.subresourceType = driver.CUarraySparseSubresourceType(1)
    where = made.subresource.miptail
    where.layer, where.offset, where.size = 0, 65536, 65536
    return made
array, one = sparse(100, 300), pool()
print(apply(tail(array, 0, one)), release(one), used(), apply(tail(array, 0)), used())
"""
    assert ran(part, SPARSE + code) == [0, 0, 2, 0, 0]


def test_an_unmapping_behind_a_busy_stream_returns_nothing_yet(part: Slice) -> None:
    code = """
array, one, stream = sparse(), pool(), check(driver.cuStreamCreate(1))
print(apply(tile(array, 0, one), stream=stream), release(one))
blocked = threading.Event()
wait = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: blocked.wait() and None)
check(driver.cuLaunchHostFunc(stream, driver.CUhostFn(ctypes.cast(wait, ctypes.c_void_p).value), 0))
print(apply(tile(array, 0), stream=stream), used(), apply(tile(array, 1), stream=0), used())
blocked.set()
check(driver.cuStreamSynchronize(stream))
print(apply(tile(array, 1), stream=stream), used())
"""
    assert ran(part, SPARSE + code) == [0, 0, 0, 2, 0, 2, 0, 0]


def test_destroying_a_sparse_array_or_its_context_returns_what_is_mapped_in_it(part: Slice) -> None:
    code = """
def filled():
    array, memory = sparse(), pool()
    return array, apply(tile(array, 0, memory)), release(memory)
array, *codes = filled()
print(*codes, used(), int(driver.cuArrayDestroy(array)[0]), used())
context = check(create_context())
print(*filled()[1:], used(), int(driver.cuCtxDestroy(context)[0]))
check(driver.cuCtxSetCurrent(check(driver.cuDevicePrimaryCtxRetain(0))))
print(used())
"""
    assert ran(part, SPARSE + code) == [0, 0, 2, 0, 0, 0, 0, 2, 0, 0]
