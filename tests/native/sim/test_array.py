"""CUDA arrays of the simulated GPU: what they cost, and that they keep what is put into them."""

import pytest

from libvgpu.sim import Machine
from support.sim.programs import run, said_in

ARRAYS = """
from support.shim.cuda_arrays import *
open_context()
def free(): return check(cuda.cuMemGetInfo())[0]
def cost(make, destroy):
    before = free()
    made = make()
    used = before - free()
    check(destroy(made))
    return [used, before - free()]
"""


def test_an_array_costs_its_padded_rows_and_gives_them_back(machine: Machine) -> None:
    code = """
LAYERED, CUBE = cuda.CUDA_ARRAY3D_LAYERED, cuda.CUDA_ARRAY3D_CUBEMAP
def of(*extent, **fields): return cost(lambda: array(*extent, **fields), cuda.cuArrayDestroy)
say(row=of(1000, Format=FLOAT), flat=of(100, 10, Format=FLOAT, NumChannels=4),
    deep=of(64, 64, 64), layers=of(64, 64, 3, Flags=LAYERED), rows=of(640, 0, 8, Flags=LAYERED),
    cube=of(64, 64, 6, Flags=CUBE), cubes=of(64, 64, 12, Flags=CUBE | LAYERED))
"""
    assert said_in(machine, ARRAYS + code) == {
        "row": [4096, 0],  # 4000 bytes as 63 blocks of 64, rounded up as every allocation
        "flat": [25 * 64 * 16, 0],  # 1600 bytes a row, 16 rows
        "deep": [64**3, 0],
        "layers": [64 * 64 * 3, 0],
        "rows": [640 * 8, 0],
        "cube": [64 * 64 * 6, 0],
        "cubes": [64 * 64 * 12, 0],
    }


def test_a_mipmapped_array_costs_all_its_levels(machine: Machine) -> None:
    code = """
def of(form, levels):
    return cost(lambda: check(cuda.cuMipmappedArrayCreate(form, levels)),
                cuda.cuMipmappedArrayDestroy)
mipmap = check(cuda.cuMipmappedArrayCreate(form(64, 16, 4), 99))
levels = []
while True:
    error, level = cuda.cuMipmappedArrayGetLevel(mipmap, len(levels))
    if int(error) != 0:
        break
    about = check(cuda.cuArray3DGetDescriptor(level))
    levels.append([about.Width, about.Height, about.Depth])
same(of(form(256, 256), 2), [256 * 256 + 128 * 128, 0])
same(levels, [[64, 16, 4], [32, 8, 2], [16, 4, 1], [8, 2, 1], [4, 1, 1], [2, 1, 1], [1, 1, 1]])
same(int(error), 1)
same(of(form(256, 256, 5, Flags=cuda.CUDA_ARRAY3D_LAYERED), 2), [5 * (256 * 256 + 128 * 128), 0])
same(int(cuda.cuArrayDestroy(check(cuda.cuMipmappedArrayGetLevel(mipmap, 0)))[0]), 400)
"""
    run(machine, ARRAYS + code)


@pytest.mark.parametrize("per_thread", ["0", "1"])  # twins of the default stream of each thread
def test_bytes_go_through_a_flat_array_and_pitched_memory(
    machine: Machine, per_thread: str
) -> None:
    code = """
width, height = 300, 40
data = os.urandom(width * height)
flat = array(width, height)
address, pitch = check(cuda.cuMemAllocPitch(width, height, 4))
back, part = bytearray(width * height), bytearray(7 * 3)
codes = [
    copy_2d(flat, data, (width, height), srcPitch=width),
    copy_2d(address, flat, (width, height), dstPitch=pitch),
    copy_2d(back, address, (width, height), srcPitch=pitch, dstPitch=width),
    copy_2d(part, flat, (7, 3), srcXInBytes=290, srcY=37, dstPitch=7),
]
say(codes=codes, padded=pitch > width, same=bytes(back) == data,
    part=bytes(part) == cut(data, width, height, (290, 37, 0), (7, 3, 1)))
"""
    env = {"CUDA_PYTHON_CUDA_PER_THREAD_DEFAULT_STREAM": per_thread}
    assert said_in(machine, ARRAYS + code, env) == {
        "codes": [0, 0, 0, 0],
        "padded": True,
        "same": True,
        "part": True,
    }


def test_a_box_inside_a_deep_array_is_copied_and_nothing_beside_it(machine: Machine) -> None:
    code = """
w, h, d = 20, 10, 6
data, patch = os.urandom(w * h * d), os.urandom(8 * 3 * 2)
deep = array(w // 4, h, d, Format=FLOAT)
other = array(w // 4, h, d, Format=FLOAT)
back, part = bytearray(w * h * d), bytearray(8 * 3 * 2)
whole = dict(srcPitch=w, srcHeight=h, dstPitch=w, dstHeight=h)
codes = [
    copy_3d(deep, data, (w, h, d), **whole),
    copy_3d(deep, patch, (8, 3, 2), dstXInBytes=4, dstY=2, dstZ=3, srcPitch=8, srcHeight=3),
    copy_3d(other, deep, (w, h, d)),
    copy_3d(back, other, (w, h, d), **whole),
    copy_3d(part, other, (8, 3, 2), srcXInBytes=4, srcY=2, srcZ=3),
]
expected = bytearray(data)
for k in range(2):
    for j in range(3):
        at = ((3 + k) * h + 2 + j) * w + 4
        expected[at:at + 8] = patch[(k * 3 + j) * 8:][:8]
say(codes=codes, same=back == expected, part=bytes(part) == patch)
"""
    assert said_in(machine, ARRAYS + code) == {
        "codes": [0] * 5,
        "same": True,
        "part": True,
    }


def test_levels_keep_their_bytes_apart(machine: Machine) -> None:
    code = """
mipmap = check(cuda.cuMipmappedArrayCreate(form(128, 128), 8))
sides = [128 >> i for i in range(8)]
levels = [check(cuda.cuMipmappedArrayGetLevel(mipmap, i)) for i in range(8)]
data = [os.urandom(side * side) for side in sides]
back = [bytearray(side * side) for side in sides]
codes = [copy_2d(l, x, (s, s), srcPitch=s) for l, x, s in zip(levels, data, sides)]
codes += [copy_2d(b, l, (s, s), dstPitch=s) for l, b, s in zip(levels, back, sides)]
say(codes=set(codes) == {0}, same=[bytes(b) for b in back] == data)
"""
    assert said_in(machine, ARRAYS + code) == {"codes": True, "same": True}


def test_rows_of_arrays_are_copied_by_offset(machine: Machine) -> None:
    code = """
row, other = array(1000), array(1000)
data, back, late = os.urandom(500), bytearray(500), bytearray(500)
address = check(cuda.cuMemAlloc(1000))
check(cuda.cuMemcpyHtoA(row, 100, data, 500))
check(cuda.cuMemcpyAtoA(other, 300, row, 100, 500))
check(cuda.cuMemcpyAtoD(address, other, 300, 500))
check(cuda.cuMemcpyDtoA(row, 0, address, 500))
check(cuda.cuMemcpyAtoH(back, row, 0, 500))
stream = check(cuda.cuStreamCreate(0))
check(cuda.cuMemcpyHtoAAsync(row, 500, data, 500, stream))
check(cuda.cuMemcpyAtoHAsync(late, row, 500, 500, stream))
check(cuda.cuStreamSynchronize(stream))
same(bytes(back) == data, True)
same(bytes(late) == data, True)
same(int(cuda.cuMemcpyHtoA(row, 501, data, 500)[0]), 1)
same(int(cuda.cuMemcpyHtoA(array(1000, 2), 0, data, 500)[0]), 1)
"""
    run(machine, ARRAYS + code)


REFUSED = {
    "0, 0, 0": 1,
    "8, 0, 8": 1,  # deep without rows
    "131073, 0, 0": 1,
    "8, 65537, 0": 1,
    "8, 8, 5, Flags=cuda.CUDA_ARRAY3D_CUBEMAP": 1,
    "8, 4, 6, Flags=cuda.CUDA_ARRAY3D_CUBEMAP": 1,
    "8, 8, 0, Flags=cuda.CUDA_ARRAY3D_LAYERED": 1,
    "8, 8, 8, Flags=cuda.CUDA_ARRAY3D_TEXTURE_GATHER": 1,
    "8, 8, 0, NumChannels=3": 1,
    "8, 8, 0, Flags=1 << 20": 1,
    "8, 8, 0, Flags=cuda.CUDA_ARRAY3D_VIDEO_ENCODE_DECODE": 801,
    "8, 8, 0, Format=cuda.CUarray_format.CU_AD_FORMAT_NV12": 801,
    "16384, 16384, 16384, Format=FLOAT": 2,  # 64 TiB
}


def test_arrays_that_cannot_be_are_refused(machine: Machine) -> None:
    forms = ", ".join(f"[int(cuda.cuArray3DCreate(form({wrong}))[0]), free()]" for wrong in REFUSED)
    said = said_in(machine, ARRAYS + f"say(said=[{forms}])")["said"]

    whole_bytes = machine.devices[0].profile.memory_bytes
    assert dict(zip(REFUSED, said, strict=True)) == {
        wrong: [code, whole_bytes] for wrong, code in REFUSED.items()
    }


def test_an_array_tells_its_form(machine: Machine) -> None:
    code = """
flat = array(30, 20, Format=FLOAT, NumChannels=2)
deep = array(30, 20, 10, Flags=cuda.CUDA_ARRAY3D_SURFACE_LDST)
two, three = check(cuda.cuArrayGetDescriptor(flat)), check(cuda.cuArray3DGetDescriptor(deep))
same([two.Width, two.Height, int(two.Format), two.NumChannels], [30, 20, 0x20, 2])
same([three.Width, three.Height, three.Depth, int(three.Format), three.Flags], [30, 20, 10, 1, 2])
same(int(cuda.cuArrayGetSparseProperties(flat)[0]), 1)
same(int(cuda.cuArrayGetMemoryRequirements(flat, 0)[0]), 1)
same(int(cuda.cuArrayGetPlane(flat, 0)[0]), 1)
same(int(cuda.cuArrayDestroy(0)[0]), 400)
"""
    run(machine, ARRAYS + code)


def test_an_array_ends_with_its_context(machine: Machine) -> None:
    code = """
before = free()
lost, lost_mipmap = array(64, 64), check(cuda.cuMipmappedArrayCreate(form(64, 64), 3))
check(cuda.cuDevicePrimaryCtxReset(0))
context = open_context()
after = free()
same(before - after, 0)
same(copy_2d(lost, bytes(64), (64, 1)), 1)
same([int(cuda.cuArrayDestroy(lost)[0]),
      int(cuda.cuMipmappedArrayDestroy(lost_mipmap)[0])], [709, 709])
same(before - free(), 0)
"""
    run(machine, ARRAYS + code)
