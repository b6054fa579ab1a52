"""Texture and surface objects of the simulated GPU: handles that remember what they are of."""

from libvgpu.sim import Machine
from support.sim.programs import run, said_in

OBJECTS = """
from support.shim.cuda_arrays import *
open_context()
KIND = cuda.CUresourcetype
NORMALIZED, SEAMLESS = cuda.CU_TRSF_NORMALIZED_COORDINATES, cuda.CU_TRSF_SEAMLESS_CUBEMAP
def of_array(array):
    made = cuda.CUDA_RESOURCE_DESC()
    made.resType = KIND.CU_RESOURCE_TYPE_ARRAY
    made.res.array.hArray = array
    made.flags = 0
    return made
def of_memory(address, size, format=FLOAT):
    made = cuda.CUDA_RESOURCE_DESC()
    made.resType = KIND.CU_RESOURCE_TYPE_LINEAR
    made.res.linear.devPtr = address
    made.res.linear.format, made.res.linear.numChannels = format, 1
    made.res.linear.sizeInBytes = size
    return made
def of_rows(address, width, height, pitch):
    made = cuda.CUDA_RESOURCE_DESC()
    made.resType = KIND.CU_RESOURCE_TYPE_PITCH2D
    rows = made.res.pitch2D
    rows.devPtr, rows.format, rows.numChannels = address, FLOAT, 1
    rows.width, rows.height, rows.pitchInBytes = width, height, pitch
    return made
def sampling(flags=0):
    made = cuda.CUDA_TEXTURE_DESC()
    made.addressMode = [cuda.CUaddress_mode.CU_TR_ADDRESS_MODE_CLAMP] * 3
    made.filterMode = made.mipmapFilterMode = cuda.CUfilter_mode.CU_TR_FILTER_MODE_LINEAR
    made.flags, made.maxAnisotropy = flags, 3
    return made
def texture(resource, flags=0, view=None):
    return cuda.cuTexObjectCreate(resource, sampling(flags), view)
"""


def test_a_texture_remembers_what_it_was_made_of(machine: Machine) -> None:
    code = """
flat = array(64, 64, Format=FLOAT)
view = cuda.CUDA_RESOURCE_VIEW_DESC()
view.format = cuda.CUresourceViewFormat.CU_RES_VIEW_FORMAT_FLOAT_1X32
view.width, view.height = 64, 64
seen, plain = check(texture(of_array(flat), NORMALIZED, view)), check(texture(of_array(flat)))
resource = check(cuda.cuTexObjectGetResourceDesc(seen))
how = check(cuda.cuTexObjectGetTextureDesc(seen))
view = check(cuda.cuTexObjectGetResourceViewDesc(seen))
same(int(resource.res.array.hArray) == int(flat), True)
same(how.flags, 2)
same(how.maxAnisotropy, 3)
same([int(view.format), view.width], [0x16, 64])
same(int(seen) != int(plain), True)
same(int(cuda.cuTexObjectGetResourceViewDesc(plain)[0]), 1)
same([int(cuda.cuTexObjectDestroy(seen)[0]) for _ in range(2)], [0, 1])
same(int(cuda.cuTexObjectGetResourceDesc(seen)[0]), 1)
same(int(cuda.cuTexObjectDestroy(99)[0]), 1)
"""
    run(machine, OBJECTS + code)


def test_textures_of_memory_need_good_addresses(machine: Machine) -> None:
    code = """
address = int(check(cuda.cuMemAlloc(1 << 16)))
def code(resource, *more): return int(texture(resource, *more)[0])
same(code(of_memory(address, 1 << 16)), 0)
same(code(of_memory(address, (1 << 16) + 4)), 1)
same(code(of_memory(address + 4, 4096)), 1)
same(code(of_memory(address, 4096, cuda.CUarray_format.CU_AD_FORMAT_NV12)), 1)
same(code(of_rows(address, 100, 16, 4096)), 0)
same(code(of_rows(address, 100, 17, 4096)), 1)
same(code(of_rows(address, 1025, 16, 4096)), 1)
same(code(of_rows(address, 100, 16, 4080)), 1)
same(code(of_memory(address, 4096), 0, cuda.CUDA_RESOURCE_VIEW_DESC()), 1)
same(code(of_array(array(64, 64)), SEAMLESS), 1)
same(code(of_array(array(64, 64, 6, Flags=cuda.CUDA_ARRAY3D_CUBEMAP)), SEAMLESS), 0)
"""
    run(machine, OBJECTS + code)


def test_a_mipmapped_texture_has_normalised_coordinates(machine: Machine) -> None:
    code = """
resource = cuda.CUDA_RESOURCE_DESC()
resource.resType = KIND.CU_RESOURCE_TYPE_MIPMAPPED_ARRAY
resource.res.mipmap.hMipmappedArray = check(cuda.cuMipmappedArrayCreate(form(64, 64), 3))
say(right=int(texture(resource, NORMALIZED)[0]), wrong=int(texture(resource)[0]))
"""
    assert said_in(machine, OBJECTS + code) == {"right": 0, "wrong": 1}


def test_a_surface_is_of_an_array_made_for_it(machine: Machine) -> None:
    code = """
good = array(64, 64, Flags=cuda.CUDA_ARRAY3D_SURFACE_LDST)
surface = check(cuda.cuSurfObjectCreate(of_array(good)))
resource = check(cuda.cuSurfObjectGetResourceDesc(surface))
address = check(cuda.cuMemAlloc(4096))
same(int(resource.res.array.hArray) == int(good), True)
same(int(cuda.cuSurfObjectCreate(of_array(array(64, 64)))[0]), 1)
same(int(cuda.cuSurfObjectCreate(of_memory(address, 4096))[0]), 1)
same(int(cuda.cuTexObjectDestroy(int(surface))[0]), 1)
same([int(cuda.cuSurfObjectDestroy(surface)[0]) for _ in range(2)], [0, 1])
"""
    run(machine, OBJECTS + code)


def test_objects_end_with_their_context(machine: Machine) -> None:
    code = """
lost = check(texture(of_array(array(64, 64))))
check(cuda.cuDevicePrimaryCtxReset(0))
open_context()
say(code=int(cuda.cuTexObjectGetResourceDesc(lost)[0]))
"""
    assert said_in(machine, OBJECTS + code) == {"code": 1}
