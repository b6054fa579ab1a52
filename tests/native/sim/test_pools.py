"""Memory pools of the simulated GPU."""

from pathlib import Path

from libvgpu.sim import PROFILES, Machine
from support.sim.programs import run, said_in
from support.sim.sharing import VMM

MIB = 1 << 20

POOLS = (
    VMM
    + """
kinds = cuda.CUmemPool_attribute
def pool(limit_mib=0, host=False, exported=False):
    wanted = cuda.CUmemPoolProps()
    wanted.allocType = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    wanted.location = properties(host=host).location
    wanted.maxSize = limit_mib * MIB
    if exported:
        wanted.handleTypes = POSIX
    return check(cuda.cuMemPoolCreate(wanted))
def take(pool, mib): return check(cuda.cuMemAllocFromPoolAsync(mib * MIB, pool, 0))
def give(address): check(cuda.cuMemFreeAsync(address, 0))
def attribute(pool, name):
    return int(check(cuda.cuMemPoolGetAttribute(pool, getattr(kinds, "CU_MEMPOOL_ATTR_" + name))))
def change(pool, name, value):
    return int(cuda.cuMemPoolSetAttribute(
        pool, getattr(kinds, "CU_MEMPOOL_ATTR_" + name), cuda.cuuint64_t(value))[0])
def charged():
    free, total = check(cuda.cuMemGetInfo())
    return (total - free) // MIB
def synchronise(): check(cuda.cuCtxSynchronize())
open_context()
"""
)


def test_every_pool_gives_back_at_a_synchronisation_what_its_threshold_allows(
    machine: Machine,
) -> None:
    code = """
one, other = pool(), pool()
change(other, "RELEASE_THRESHOLD", 8 * MIB)
pieces = [take(one, 16), take(other, 16)]
steps = [charged()]
for piece in pieces: give(piece)
steps.append(charged())
synchronise(); steps.append(charged())
check(cuda.cuMemPoolTrimTo(other, 2 * MIB)); steps.append(charged())
check(cuda.cuMemPoolTrimTo(other, 4 * MIB)); steps.append(charged())
check(cuda.cuMemPoolDestroy(other)); steps.append(charged())
say(steps=steps)
"""
    assert said_in(machine, POOLS + code) == {"steps": [32, 32, 8, 2, 2, 0]}


def test_what_any_pool_keeps_does_not_stand_in_the_way(machine: Machine) -> None:
    code = """
free = check(cuda.cuMemGetInfo())[0] // MIB
keeper, taker = pool(), pool()
change(keeper, "RELEASE_THRESHOLD", 1 << 40)
give(take(keeper, free))
synchronise()
kept = charged()
piece = take(taker, free)
give(piece)
say(kept=kept == free, plain=code(cuda.cuMemAlloc(free * MIB)))
"""
    assert said_in(machine, POOLS + code) == {"kept": True, "plain": 0}


def test_a_destroyed_pool_lives_as_long_as_its_memory(machine: Machine) -> None:
    code = """
gone = pool()
piece, other = take(gone, 4), take(gone, 2)
check(cuda.cuMemPoolDestroy(gone))
steps = [charged(), code(cuda.cuMemcpyHtoD(piece, b"x", 1)), code(cuda.cuMemPoolTrimTo(gone, 0))]
give(piece); steps.append(charged())
check(cuda.cuMemFree(other)); steps.append(charged())
say(steps=steps)
"""
    assert said_in(machine, POOLS + code) == {"steps": [6, 0, 1, 2, 0]}


def test_a_pool_stays_below_its_largest_size(machine: Machine) -> None:
    code = """
small = pool(limit_mib=8)
first = take(small, 6)
refused = code(cuda.cuMemAllocFromPoolAsync(3 * MIB, small, 0))
give(first)
say(refused=refused, whole=bool(take(small, 8)), limit=attribute(small, "MAX_POOL_SIZE") // MIB)
"""
    assert said_in(machine, POOLS + code) == {"refused": 2, "whole": True, "limit": 8}


def test_attributes_tell_what_is_used_and_was_at_most(machine: Machine) -> None:
    code = """
def marks(): return [attribute(own, f"{what}_MEM_{when}") // MIB
                     for what in ("USED", "RESERVED") for when in ("CURRENT", "HIGH")]
own = pool(exported=True)
pieces = [take(own, 3), take(own, 5)]
give(pieces.pop())
seen = [marks()]
synchronise(); seen.append(marks())
seen.append([change(own, "USED_MEM_HIGH", 0), change(own, "RESERVED_MEM_HIGH", 1),
             change(own, "USED_MEM_CURRENT", 0)])
seen.append(marks())
say(seen=seen, types=attribute(own, "EXPORT_HANDLE_TYPES"), place=attribute(own, "LOCATION_TYPE"))
"""
    assert said_in(machine, POOLS + code) == {
        "seen": [[3, 8, 8, 8], [3, 8, 3, 8], [0, 1, 1], [3, 3, 3, 8]],
        "types": 1,
        "place": 1,
    }


def test_a_pool_on_the_host_is_not_charged(machine: Machine) -> None:
    code = """
host = pool(host=True)
piece = take(host, 5)
cuda.cuMemcpyHtoD(piece, b"host", 4)
name = cuda.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE
say(charged=charged(), kind=int(check(cuda.cuPointerGetAttribute(name, piece))),
    data=read(piece, 4).decode(), current=code(cuda.cuDeviceSetMemPool(0, host)))
"""
    assert said_in(machine, POOLS + code) == {"charged": 0, "kind": 1, "data": "host", "current": 1}


def test_the_host_and_its_nodes_have_pools_of_their_own(machine: Machine) -> None:
    code = """
pinned = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
types = cuda.CUmemLocationType
def place(kind, number=0):
    made = cuda.CUmemLocation()
    made.type, made.id = getattr(types, "CU_MEM_LOCATION_TYPE_" + kind), number
    return made
def current(at): return int(check(cuda.cuMemGetMemPool(at, pinned)))
anywhere, node = place("HOST"), place("HOST_NUMA")
first = cuda.CUmemoryPool(current(anywhere))
own = pool(host=True)
piece = take(first, 5)
check(cuda.cuMemcpyHtoD(piece, b"host", 4))
same([code(cuda.cuMemSetMemPool(at, pinned, own)) for at in (anywhere, node)], [0, 1])
same(current(anywhere) == int(own), True)
check(cuda.cuMemPoolDestroy(own))
same(read(piece, 4).decode(), "host")
same(charged(), 0)
same(attribute(first, "USED_MEM_CURRENT"), 5 * MIB)
same(current(place("HOST", 7)) == int(first), True)
same(current(node) != int(first), True)
same(code(cuda.cuMemGetMemPool(place("HOST_NUMA", 99), pinned)), 101)
same(current(anywhere) == int(first), True)
same(code(cuda.cuMemPoolDestroy(first)), 1)
same(code(cuda.cuMemGetMemPool(place("INVALID"), pinned)), 1)
"""
    run(machine, POOLS + code)


def test_the_current_pool_is_found_by_device_and_by_location(machine: Machine) -> None:
    code = """
own, place = pool(), properties().location
pinned = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
managed = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_MANAGED
same = lambda one, other: int(one) == int(other)
first = check(cuda.cuMemGetMemPool(place, pinned))
check(cuda.cuMemSetMemPool(place, pinned, own))
same(same(first, check(cuda.cuDeviceGetDefaultMemPool(0))), True)
same(same(own, check(cuda.cuMemGetMemPool(place, pinned))), True)
same(same(own, check(cuda.cuDeviceGetMemPool(0))), True)
same(same(first, check(cuda.cuMemGetDefaultMemPool(place, pinned))), True)
same(code(cuda.cuMemGetMemPool(place, managed)), 801)
same(code(cuda.cuMemPoolDestroy(first)), 1)
"""
    run(machine, POOLS + code)


def test_the_owner_always_has_access(machine: Machine) -> None:
    code = """
own, place = pool(), properties().location
say(owner=int(check(cuda.cuMemPoolGetAccess(own, place))),
    granted=code(cuda.cuMemPoolSetAccess(own, [descriptor()], 1)),
    taken=code(cuda.cuMemPoolSetAccess(own, [descriptor(NONE)], 1)),
    host=int(check(cuda.cuMemPoolGetAccess(own, properties(host=True).location))))
"""
    assert said_in(machine, POOLS + code) == {"owner": 3, "granted": 0, "taken": 101, "host": 0}


def test_a_pool_of_a_device_without_a_context_is_counted_there(tmp_path: Path) -> None:
    machine = Machine.create([PROFILES["t4"]] * 2, tmp_path / "machine")
    code = """
wanted = cuda.CUmemPoolProps()
wanted.allocType = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
wanted.location = properties().location
wanted.location.id = 1
elsewhere = check(cuda.cuMemPoolCreate(wanted))
take(elsewhere, 6)
here = charged()
open_context(1)
say(here=here, there=charged())
"""
    context_mib = PROFILES["t4"].context_bytes // MIB

    assert said_in(machine, POOLS + code) == {"here": context_mib, "there": context_mib + 6}
