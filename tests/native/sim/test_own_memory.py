"""Memory that the driver gave to something of its own is not the program's to free."""

import pytest

from libvgpu.sim import Machine
from support.sim.programs import run, said_in

INVALID_VALUE = 1

OWN = """
import threading
open_context()
PTX = b'''.version 7.0
.target sm_70
.visible .global .align 4 .b8 table[1048576];
.visible .global .attribute(.managed) .align 4 .b8 shared[1048576];
'''
def variable(name):
    return check(cuda.cuModuleGetGlobal(module, name))[0]
free = check(cuda.cuMemGetInfo())[0]
def taken(): return free - check(cuda.cuMemGetInfo())[0]
stream = check(cuda.cuStreamCreate(1))
def refusals(address):
    go, kept = threading.Event(), []
    kept.append(ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: go.wait(60)))
    codes = [int(cuda.cuMemFree(address)[0]), int(cuda.cuMemFreeAsync(address, stream)[0])]
    check(cuda.cuLaunchHostFunc(stream, ctypes.cast(kept[0], ctypes.c_void_p).value, 0))
    codes.append(int(cuda.cuMemFreeAsync(address, stream)[0]))  # which would take its turn
    go.set()
    check(cuda.cuStreamSynchronize(stream))
    return codes
"""


@pytest.mark.parametrize("name", ["table", "shared"])
def test_a_variable_of_a_module_is_not_freed_but_by_its_module(machine: Machine, name: str) -> None:
    code = f"""
module = check(cuda.cuModuleLoadData(PTX))
address = variable(b"{name}")
loaded = taken()
codes = refusals(address)
check(cuda.cuMemsetD8(address, 5, 4096))
say(codes=codes, kept=taken() - loaded, export=int(cuda.cuIpcGetMemHandle(address)[0]),
    unload=int(cuda.cuModuleUnload(module)[0]), left=taken())
"""
    assert said_in(machine, OWN + code) == {
        "codes": [INVALID_VALUE] * 3,
        "kept": 0,
        "export": INVALID_VALUE,
        "unload": 0,
        "left": 0,
    }


def test_a_managed_variable_is_managed_memory(machine: Machine) -> None:
    code = """
module = check(cuda.cuModuleLoadData(PTX))
address = variable(b"shared")
managed = cuda.CUpointer_attribute.CU_POINTER_ATTRIBUTE_IS_MANAGED
place = cuda.CUmemLocation()
place.type, place.id = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE, 0
say(prefetch=int(cuda.cuMemPrefetchAsync(address, 4096, place, 0, stream)[0]),
    managed=int(check(cuda.cuPointerGetAttribute(managed, address))),
    plain=int(check(cuda.cuPointerGetAttribute(managed, variable(b"table")))))
"""
    assert said_in(machine, OWN + code) == {"prefetch": 0, "managed": 1, "plain": 0}


def test_the_memory_of_an_array_is_not_freed_but_by_its_array(machine: Machine) -> None:
    # A freed address comes again with the next allocation of its size: so a program learns of one.
    code = """
descriptor = cuda.CUDA_ARRAY_DESCRIPTOR()
descriptor.Width = 1 << 16
descriptor.Height = 0
descriptor.NumChannels = 1
descriptor.Format = cuda.CUarray_format.CU_AD_FORMAT_UNSIGNED_INT8
behind = check(cuda.cuMemAlloc(1 << 16))
check(cuda.cuMemFree(behind))
array = check(cuda.cuArrayCreate(descriptor))
same(refusals(behind), [INVALID_VALUE] * 3)
same(taken(), 1 << 16)
same(int(cuda.cuArrayDestroy(array)[0]), 0)
same(taken(), 0)
"""
    run(machine, OWN + code)


def test_a_copy_of_any_direction_stays_inside_what_it_begins_in(machine: Machine) -> None:
    code = """
small, large = check(cuda.cuMemAlloc(4096)), check(cuda.cuMemAlloc(1 << 20))
host = ctypes.create_string_buffer(1 << 20)
there = ctypes.addressof(host)
say(codes=[int(cuda.cuMemcpy(small, large, 8192)[0]), int(cuda.cuMemcpy(large, small, 8192)[0]),
           int(cuda.cuMemcpy(small, there, 8192)[0]), int(cuda.cuMemcpy(there, small, 8192)[0]),
           int(cuda.cuMemcpy(large, there, 1 << 20)[0])])
"""
    assert said_in(machine, OWN + code) == {"codes": [INVALID_VALUE] * 4 + [0]}
