"""Copies and fills of other shapes than a row, seen by an unmodified CUDA client."""

from libvgpu.sim import Machine
from support.lines import expect, tell
from support.sim.programs import finish, run, said_in, start

#: What a copy inside a device takes besides the time of its bytes (copy.c).
LATENCY_NS = 1500

COPIES = """
from support.shim.cuda_arrays import *
open_context()
def alloc(data):
    address = check(cuda.cuMemAlloc(len(data)))
    check(cuda.cuMemcpyHtoD(address, data, len(data)))
    return address
def read(address, size):
    back = bytearray(size)
    check(cuda.cuMemcpyDtoH(back, address, size))
    return bytes(back)
"""


def test_a_box_moves_between_two_pitches(machine: Machine) -> None:
    code = """
data = os.urandom(50 * 12 * 5)  # slices of 12 rows of 50 bytes
source, target = alloc(data), alloc(bytes(64 * 7 * 4))
code = copy_3d(target, source, (30, 4, 3), srcXInBytes=11, srcY=6, srcZ=2, srcPitch=50,
               srcHeight=12, dstXInBytes=8, dstY=2, dstZ=1, dstPitch=64, dstHeight=7)
after = read(target, 64 * 7 * 4)
say(code=code, moved=cut(after, 64, 7, (8, 2, 1), (30, 4, 3)) ==
    cut(data, 50, 12, (11, 6, 2), (30, 4, 3)), others=len(after) - 30 * 4 * 3 == after.count(0)
    - cut(after, 64, 7, (8, 2, 1), (30, 4, 3)).count(0))
"""
    assert said_in(machine, COPIES + code) == {"code": 0, "moved": True, "others": True}


OUTSIDE = {
    "dict(srcPitch=99)": "a pitch below the width",
    "dict(srcPitch=1 << 31)": "a pitch beyond the largest",
    "dict(srcY=1)": "a source that ends too early",
    "dict(dstXInBytes=1, dstPitch=101)": "a target that ends too early",
    "dict(srcDevice=12345)": "an address of nobody",
    "dict(srcHeight=9)": "slices lower than the box",
    "dict(srcLOD=1)": "a level of detail",
    "dict(srcZ=(1 << 64) - 1)": "an offset that wraps round",
}


def test_boxes_outside_of_their_memory_are_refused(machine: Machine) -> None:
    boxes = ", ".join(OUTSIDE)
    code = f"""
data = os.urandom(100 * 10 * 2)
source, target = alloc(data), alloc(bytes(len(data)))
packed = dict(srcPitch=100, srcHeight=10, dstPitch=100, dstHeight=10)
wrong = [copy_3d(target, source, (100, 10, 2), **(packed | each)) for each in [{boxes}]]
untouched = read(target, len(data)) == bytes(len(data))
say(wrong=wrong, untouched=untouched, right=copy_3d(target, source, (100, 10, 2), **packed))
"""
    said = said_in(machine, COPIES + code)
    assert dict(zip(OUTSIDE.values(), said["wrong"], strict=True)) == dict.fromkeys(
        OUTSIDE.values(), 1
    )
    assert (said["untouched"], said["right"]) == (True, 0)


def test_fills_of_rows_leave_what_is_between_them(machine: Machine) -> None:
    code = """
address = alloc(bytes(256))
stream = check(cuda.cuStreamCreate(0))
check(cuda.cuMemsetD2D8(address, 32, 7, 5, 2))
check(cuda.cuMemsetD2D16(int(address) + 64, 32, 0x0201, 2, 2))
check(cuda.cuMemsetD2D32Async(int(address) + 128, 32, 0x04030201, 1, 2, stream))
check(cuda.cuMemsetD2D8(int(address) + 192, 32, 0, 5, 2))
check(cuda.cuMemsetD2D8Async(int(address) + 224, 0, 9, 32, 1, stream))
check(cuda.cuStreamSynchronize(stream))
same([read(address, 256)[i:i + 32].rstrip(b"\\0").hex() for i in range(0, 256, 32)],
     ["07" * 5, "07" * 5, "01020102", "01020102", "01020304", "01020304", "", "09" * 32])
same(int(cuda.cuMemsetD2D8(address, 32, 7, 5, 9)[0]), 1)
same(int(cuda.cuMemsetD2D8(address, 4, 7, 5, 2)[0]), 1)
same(int(cuda.cuMemsetD2D16(int(address) + 1, 32, 7, 5, 2)[0]), 1)
"""
    run(machine, COPIES + code)


def test_a_batch_copies_all_or_nothing(machine: Machine) -> None:
    code = """
data = [os.urandom(1000 + i) for i in range(3)]
sources, targets = [alloc(x) for x in data], [alloc(bytes(len(x))) for x in data]
attributes = cuda.CUmemcpyAttributes()
attributes.srcAccessOrder = cuda.CUmemcpySrcAccessOrder.CU_MEMCPY_SRC_ACCESS_ORDER_STREAM
stream = check(cuda.cuStreamCreate(0))
def batch(targets, stream=stream, attributes=[attributes], firsts=[0]):
    sizes = [len(x) for x in data]
    return int(cuda.cuMemcpyBatchAsync(targets, sources, sizes, 3, attributes, firsts,
                                       len(firsts), stream)[0])
same(batch([targets[0], targets[1], cuda.CUdeviceptr(int(targets[2]) + 1)]), 1)
same(read(targets[0], 1000) == bytes(1000), True)
unsaid = batch(targets, attributes=[cuda.CUmemcpyAttributes()])
late = batch(targets, attributes=[attributes] * 2, firsts=[0, 3])
legacy = batch(targets, stream=0)
same(batch(targets, attributes=[attributes] * 2, firsts=[0, 2]), 0)
check(cuda.cuStreamSynchronize(stream))
same([unsaid, late, legacy], [1, 1, 1])
same([read(t, len(x)) == x for t, x in zip(targets, data)], [True] * 3)
"""
    run(machine, COPIES + code)


def test_a_batch_of_boxes_counts_in_elements_of_the_array(machine: Machine) -> None:
    code = """
data = os.urandom(16 * 4 * 5 * 3)  # 5 rows of 16 floats in 3 slices
memory, back = alloc(data), alloc(bytes(8 * 4 * 3 * 2))
deep = array(16, 5, 3, Format=FLOAT)
POINTER, ARRAY = (cuda.CUmemcpy3DOperandType.CU_MEMCPY_OPERAND_TYPE_POINTER,
                  cuda.CUmemcpy3DOperandType.CU_MEMCPY_OPERAND_TYPE_ARRAY)
def operand(memory, offset=(0, 0, 0)):
    made = cuda.CUmemcpy3DOperand()
    if isinstance(memory, cuda.CUarray):
        made.type = ARRAY
        made.op.array.array = memory
        made.op.array.offset.x, made.op.array.offset.y, made.op.array.offset.z = offset
    else:
        made.type = POINTER
        made.op.ptr.ptr = memory
    return made
def copy(target, source, width, height, depth):
    made = cuda.CUDA_MEMCPY3D_BATCH_OP()
    made.dst, made.src = target, source
    made.extent.width, made.extent.height, made.extent.depth = width, height, depth
    made.srcAccessOrder = cuda.CUmemcpySrcAccessOrder.CU_MEMCPY_SRC_ACCESS_ORDER_STREAM
    return made
stream = check(cuda.cuStreamCreate(0))
def batch(*copies): return int(cuda.cuMemcpy3DBatchAsync(len(copies), list(copies), 0, stream)[0])
into = copy(operand(deep), operand(memory), 16, 5, 3)
out = copy(operand(back), operand(deep, (8, 2, 1)), 8, 3, 2)
beyond = copy(operand(back), operand(deep, (9, 2, 1)), 8, 3, 2)
codes = [batch(into, beyond), batch(into), batch(out)]
check(cuda.cuStreamSynchronize(stream))
say(codes=codes, same=read(back, 8 * 4 * 3 * 2) == cut(data, 64, 5, (32, 2, 1), (32, 3, 2)))
"""
    assert said_in(machine, COPIES + code) == {"codes": [1, 0, 0], "same": True}


def test_a_captured_box_moves_when_its_graph_runs(machine: Machine) -> None:
    code = """
data = os.urandom(1000)
source, target = alloc(data), alloc(bytes(1000))
stream = check(cuda.cuStreamCreate(0))
mode = cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL
check(cuda.cuStreamBeginCapture(stream, mode))
made = box(cuda.CUDA_MEMCPY2D, target, source, (10, 5), srcPitch=100, dstPitch=20)
check(cuda.cuMemcpy2DAsync(made, stream))
check(cuda.cuMemsetD2D8Async(int(target) + 500, 20, 7, 10, 5, stream))
graph = check(cuda.cuStreamEndCapture(stream))
before = read(target, 1000)
check(cuda.cuGraphLaunch(check(cuda.cuGraphInstantiate(graph, 0)), stream))
check(cuda.cuStreamSynchronize(stream))
after = read(target, 1000)
same(before == bytes(1000), True)
same(after[500:].count(7), 50)
same(cut(after, 20, 5, (0, 0, 0), (10, 5, 1)) == cut(data, 100, 5, (0, 0, 0), (10, 5, 1)), True)
"""
    run(machine, COPIES + code)


def test_a_box_takes_the_time_of_its_bytes(machine: Machine) -> None:
    code = """
one, other = check(cuda.cuMemAlloc(32 << 20)), check(cuda.cuMemAlloc(32 << 20))
def wait(): sys.stdin.readline()
check(cuda.cuCtxSynchronize()); print(flush=True); wait()
check(cuda.cuMemcpyDtoD(other, one, 16 << 20))
check(cuda.cuCtxSynchronize()); print(flush=True); wait()
copy_2d(other, one, (1 << 15, 1 << 9), srcPitch=1 << 16, dstPitch=1 << 16)
check(cuda.cuCtxSynchronize()); print(flush=True); wait()
"""
    program = start(machine, COPIES + code)
    busy_ns = []
    for _ in range(3):
        expect(program, "")
        busy_ns.append(machine.books()[0].busy_ns)
        tell(program)
    finish(program)

    row_ns, box_ns = busy_ns[1] - busy_ns[0], busy_ns[2] - busy_ns[1]
    bandwidth = machine.devices[0].profile.memory_bytes_per_second
    assert row_ns == box_ns == LATENCY_NS + int((16 << 20) * 1e9 / bandwidth)
