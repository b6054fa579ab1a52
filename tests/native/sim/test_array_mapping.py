"""Arrays of the simulated GPU whose memory is mapped in later."""

from pathlib import Path

from libvgpu.sim import PROFILES, Machine
from support.sim.programs import run, said_in
from support.sim.sharing import VMM

MAPPING = (
    VMM
    + """
from support.shim.cuda_arrays import *
DEFERRED, SPARSE = cuda.CUDA_ARRAY3D_DEFERRED_MAPPING, cuda.CUDA_ARRAY3D_SPARSE
LAYERED = cuda.CUDA_ARRAY3D_LAYERED
KINDS = cuda.CUarraySparseSubresourceType
def mipmap(levels, *extent, **fields):
    return check(cuda.cuMipmappedArrayCreate(form(*extent, **fields), levels))
def pool(granules=1, device=0):
    wanted = properties()
    wanted.location.id = device
    wanted.allocFlags.usage = 1  # a tile pool
    return check(cuda.cuMemCreate(granules * GRANULE, wanted, 0))
def operation(to, memory=None, offset=0, box=None, tail=None, level=0, layer=0):
    made = cuda.CUarrayMapInfo()
    if isinstance(to, cuda.CUmipmappedArray):
        made.resourceType = cuda.CUresourcetype.CU_RESOURCE_TYPE_MIPMAPPED_ARRAY
        made.resource.mipmap = to
    else:
        made.resourceType = cuda.CUresourcetype.CU_RESOURCE_TYPE_ARRAY
        made.resource.array = to
    if tail:
        made.subresourceType = KINDS.CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL
        made.subresource.miptail.layer = layer
        made.subresource.miptail.offset, made.subresource.miptail.size = tail
    if box:
        made.subresourceType = KINDS.CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_SPARSE_LEVEL
        part = made.subresource.sparseLevel
        part.level, part.layer = level, layer
        (part.offsetX, part.offsetY, part.offsetZ,
         part.extentWidth, part.extentHeight, part.extentDepth) = box
    made.memHandleType = cuda.CUmemHandleType.CU_MEM_HANDLE_TYPE_GENERIC
    kinds = cuda.CUmemOperationType
    made.memOperationType = kinds.CU_MEM_OPERATION_TYPE_UNMAP
    if memory is not None:
        made.memOperationType = kinds.CU_MEM_OPERATION_TYPE_MAP
        made.memHandle.memHandle = memory
        made.offset = offset
    made.deviceBitMask = 1
    return made
def apply(*operations, stream=0):
    return code(cuda.cuMemMapArrayAsync(list(operations), len(operations), stream))
def release(handle): return code(cuda.cuMemRelease(handle))
"""
)


def test_a_deferred_array_tells_what_an_ordinary_one_of_its_form_costs(machine: Machine) -> None:
    code = """
open_context()
def free(): return check(cuda.cuMemGetInfo())[0]
def ask(make, requirements, destroy, flags):
    start = free()
    later = make(Flags=flags | DEFERRED)
    nothing = start - free()
    told = check(requirements(later, 0))
    check(destroy(later))
    plain = make(Flags=flags)
    cost = start - free()
    check(destroy(plain))
    return [nothing, told.size == cost > 0, cost % told.alignment]
def of(*extent, flags=0, **fields):
    return ask(lambda Flags: array(*extent, Flags=Flags, **fields),
               cuda.cuArrayGetMemoryRequirements, cuda.cuArrayDestroy, flags)
def of_levels(levels, *extent, flags=0, **fields):
    return ask(lambda Flags: mipmap(levels, *extent, Flags=Flags, **fields),
               cuda.cuMipmappedArrayGetMemoryRequirements, cuda.cuMipmappedArrayDestroy, flags)
say(row=of(1000), flat=of(100, 10, Format=FLOAT, NumChannels=4), deep=of(65, 33, 7),
    layers=of(64, 64, 3, flags=LAYERED), cube=of(32, 32, 6, flags=cuda.CUDA_ARRAY3D_CUBEMAP),
    levels=of_levels(5, 100, 60), deep_levels=of_levels(3, 40, 30, 20, Format=FLOAT))
"""
    assert set(map(tuple, said_in(machine, MAPPING + code).values())) == {(0, True, 0)}


def test_memory_mapped_to_a_deferred_array_lives_until_it_is_unmapped(machine: Machine) -> None:
    code = """
open_context()
flat = array(2048, 2048, Flags=DEFERRED)
memory = pool(3)
steps = [used(), apply(operation(flat, memory, offset=GRANULE)), release(memory), used()]
steps += [apply(operation(flat)), used(), code(cuda.cuArrayDestroy(flat))]
say(steps=steps)
"""
    assert said_in(machine, MAPPING + code) == {"steps": [3, 0, 0, 3, 0, 0, 0]}


def test_destroying_an_array_or_its_context_gives_back_what_was_mapped(machine: Machine) -> None:
    code = """
open_context()
levels, lost = mipmap(2, 1024, 1024, Flags=DEFERRED), array(512, 512, Flags=DEFERRED)
for each in (levels, lost):
    memory = pool()
    assert apply(operation(each, memory)) == 0 == release(memory)
same(used(), 2)
same([code(cuda.cuMipmappedArrayDestroy(levels)), used()], [0, 1])
check(cuda.cuDevicePrimaryCtxReset(0))
open_context()
same(used(), 0)
same(code(cuda.cuArrayDestroy(lost)), 709)
"""
    run(machine, MAPPING + code)


def test_a_piece_lives_while_any_tile_of_it_is_mapped(machine: Machine) -> None:
    code = """
open_context()
flat = array(1024, 512, Flags=SPARSE)  # four by two tiles
told = check(cuda.cuArrayGetSparseProperties(flat))
one, other = pool(), pool()
steps = [used(), apply(operation(flat, one, box=(0, 0, 0, 1024, 256, 1)),
                       operation(flat, other, box=(0, 256, 0, 512, 256, 1), offset=65536))]
steps += [release(one), release(other), used()]
steps += [apply(operation(flat, box=(256, 0, 0, 768, 512, 1))), used()]  # a tile of each is left
steps += [apply(operation(flat, pool(), box=(0, 0, 0, 256, 256, 1))), used()]  # in place of one's
steps += [apply(operation(flat, box=(0, 256, 0, 256, 256, 1))), used()]
same([told.tileExtent.width, told.tileExtent.height, told.tileExtent.depth], [256, 256, 1])
same([told.miptailSize, told.flags], [0, 0])
same(steps, [2, 0, 0, 0, 2, 0, 2, 0, 2, 0, 1])
"""
    run(machine, MAPPING + code)


def test_levels_below_a_tile_are_mapped_as_the_tail_of_their_layer(machine: Machine) -> None:
    code = """
open_context()
levels = mipmap(9, 256, 256, 3, Format=FLOAT, Flags=SPARSE | LAYERED)  # tiles are 128 wide and high
told = check(cuda.cuMipmappedArrayGetSparseProperties(levels))
memory = pool()
tail = (0, told.miptailSize)
answers = [apply(operation(levels, memory, tail=tail, layer=2)),
           apply(operation(levels, memory, box=(0, 0, 0, 128, 128, 1), level=1, layer=2)),
           apply(operation(levels, memory, box=(0, 0, 0, 64, 64, 1), level=2)),
           apply(operation(levels, memory, tail=tail, layer=3))]
release(memory)
small = array(100, 300, Flags=SPARSE)
alone = check(cuda.cuArrayGetSparseProperties(small))
steps = [used(), apply(operation(levels, box=(0, 0, 0, 128, 128, 1), level=1, layer=2)), used(),
         apply(operation(levels, tail=tail, layer=2)), used()]
same(told.miptailFirstLevel, 2)
same(told.miptailSize, 65536)
same(answers, [0, 0, 1, 1])
same(steps, [1, 0, 1, 0, 0])
same([alone.flags, alone.miptailFirstLevel, alone.miptailSize], [1, 0, 65536])
"""
    run(machine, MAPPING + code)


MAPPINGS = {
    "operation(sparse, memory, box=(0, 0, 0, 256, 256, 1))": 0,
    "operation(sparse, memory, box=(256, 256, 0, 44, 44, 1))": 0,  # up to the edge
    "operation(sparse, memory, box=(256, 256, 0, 256, 256, 1))": 0,
    "operation(sparse, memory, box=(256, 256, 0, 43, 44, 1))": 1,
    "operation(sparse, memory, box=(128, 0, 0, 256, 256, 1))": 1,
    "operation(sparse, memory, box=(512, 0, 0, 256, 256, 1))": 1,
    "operation(sparse, memory, box=(0, 0, 1, 256, 256, 1))": 1,
    "operation(sparse, memory, box=(0, 0, 0, 256, 256, 1), layer=1)": 1,
    "operation(sparse, memory, box=(0, 0, 0, 256, 256, 1), level=1)": 1,
    "operation(sparse, memory, box=(0, 0, 0, 256, 256, 1), offset=4096)": 1,
    "operation(sparse, memory, box=(0, 0, 0, 512, 256, 1), offset=GRANULE - 65536)": 1,
    "operation(sparse, create(), box=(0, 0, 0, 256, 256, 1))": 1,  # no tile pool
    "operation(sparse, pool(1, 1), box=(0, 0, 0, 256, 256, 1))": 1,  # on another GPU
    "operation(sparse, 999, box=(0, 0, 0, 256, 256, 1))": 1,
    "operation(later, memory)": 0,
    "operation(later, memory, offset=GRANULE)": 1,
    "operation(array(64, 64), memory)": 1,
}


def test_what_does_not_fit_is_refused_and_maps_nothing(tmp_path: Path) -> None:
    machine = Machine.create([PROFILES["t4"]] * 2, tmp_path / "machine")
    tries = ", ".join(f"attempt(lambda: {operations})" for operations in MAPPINGS)
    code = f"""
open_context()
def attempt(operations):
    global sparse, later, memory
    before = used()
    sparse, later, memory = array(300, 300, Flags=SPARSE), array(64, 64, Flags=DEFERRED), pool()
    good = operation(later, memory)
    answer = apply(good, operations())
    release(memory)
    return [answer, used() - before]
say(tries=[{tries}])
"""
    said = said_in(machine, MAPPING + code)["tries"]

    assert dict(zip(MAPPINGS, said, strict=True)) == {
        operations: [answer, operations.count("create()") + (answer == 0)]
        for operations, answer in MAPPINGS.items()
    }


def test_an_unmapping_behind_a_host_function_waits_for_its_turn(machine: Machine) -> None:
    code = """
import threading
open_context()
flat, memory, stream = array(64, 64, Flags=DEFERRED), pool(), check(cuda.cuStreamCreate(1))
assert apply(operation(flat, memory), stream=stream) == 0 == release(memory)
word = check(cuda.cuMemHostAlloc(4, 0))
ctypes.c_uint.from_address(word).value = 0
check(cuda.cuStreamWaitValue32(stream, word, 1, 0))
answer, waiting = apply(operation(flat), stream=stream), used()
ctypes.c_uint.from_address(word).value = 1
check(cuda.cuStreamSynchronize(stream))
say(answer=answer, waiting=waiting, after=used())
"""
    assert said_in(machine, MAPPING + code) == {"answer": 0, "waiting": 1, "after": 0}


def test_bytes_of_such_arrays_cannot_be_copied(machine: Machine) -> None:
    code = """
open_context()
flat = array(64, 64, Flags=DEFERRED)
assert apply(operation(flat, pool())) == 0
say(copied=copy_2d(flat, bytes(64), (64, 1)),
    asked=[code(cuda.cuArrayGetSparseProperties(flat)),
              code(cuda.cuArrayGetMemoryRequirements(array(64, 64, Flags=SPARSE), 0))],
    row=code(cuda.cuArray3DCreate(form(64, Flags=SPARSE))),
    both=code(cuda.cuArray3DCreate(form(64, 64, Flags=SPARSE | DEFERRED))))
"""
    assert said_in(machine, MAPPING + code) == {"copied": 801, "asked": [1, 1], "row": 1, "both": 1}


def test_tiles_are_as_square_or_cubic_as_the_element_allows(machine: Machine) -> None:
    code = """
open_context()
def tile(channels, depth, **fields):
    told = check(cuda.cuArrayGetSparseProperties(
        array(512, 512, depth, NumChannels=channels, Flags=SPARSE, **fields))).tileExtent
    return [told.width, told.height, told.depth]
say(flat=[tile(n, 0, Format=f) for n, f in ((1, BYTE), (2, BYTE), (1, FLOAT), (2, FLOAT), (4, FLOAT))],
    deep=[tile(n, 64, Format=f) for n, f in ((1, BYTE), (2, BYTE), (1, FLOAT), (2, FLOAT), (4, FLOAT))])
"""  # noqa: E501
    assert said_in(machine, MAPPING + code) == {
        "flat": [[256, 256, 1], [256, 128, 1], [128, 128, 1], [128, 64, 1], [64, 64, 1]],
        "deep": [[64, 32, 32], [32, 32, 32], [32, 32, 16], [32, 16, 16], [16, 16, 16]],
    }


def test_a_capture_refuses_to_map(machine: Machine) -> None:
    code = """
open_context()
flat, memory, stream = array(64, 64, Flags=DEFERRED), pool(), check(cuda.cuStreamCreate(1))
check(cuda.cuStreamBeginCapture(stream, cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
refused = apply(operation(flat, memory), stream=stream)
release(memory)
say(refused=refused, used=used())
"""
    assert said_in(machine, MAPPING + code) == {"refused": 900, "used": 0}


def test_threads_map_one_piece_side_by_side_and_leave_nothing(machine: Machine) -> None:
    code = """
import threading
context, wrong = open_context(), []
def work(number, memory):
    check(cuda.cuCtxSetCurrent(context))
    for turn in range(40):
        flat = array(512, 512, Flags=DEFERRED if turn % 2 else SPARSE)
        box = None if turn % 2 else (0, 0, 0, 512, 512, 1)
        wrong.extend(filter(None, [apply(operation(flat, memory, box=box))]))
        if turn % 4 < 2:
            wrong.extend(filter(None, [apply(operation(flat, box=box))]))
        own = pool()
        wrong.extend(filter(None, [apply(operation(flat, own, box=box)), release(own),
                                   code(cuda.cuArrayDestroy(flat))]))
memory = pool()
threads = [threading.Thread(target=work, args=(number, memory)) for number in range(4)]
for each in threads: each.start()
for each in threads: each.join()
kept = used()
release(memory)
say(wrong=wrong, kept=kept, left=used())
"""
    assert said_in(machine, MAPPING + code) == {"wrong": [], "kept": 1, "left": 0}
