"""What launches and functions answer on the simulated GPU, old and new kinds."""

from dataclasses import replace
from pathlib import Path

import pytest

from libvgpu.sim import PROFILES, Machine
from support.sim.programs import run, said_in

SUCCESS, INVALID_VALUE, INVALID_HANDLE, OUT_OF_RESOURCES = 0, 1, 400, 701
TOO_LARGE, CLUSTER_SIZE, NOT_SUPPORTED = 720, 912, 801
H100_SMS = PROFILES["h100-80g"].sm_count

PRELUDE = """
from support.shim.device_code import *
F = cuda.CUfunction_attribute
A = cuda.CUlaunchAttributeID
context = open_context()
def function(text, name=b"k"):
    return check(cuda.cuModuleGetFunction(check(cuda.cuModuleLoadData(ptx(text))), name))
def launch(f, grid=(1, 1, 1), block=(1, 1, 1), shared=0):
    return int(cuda.cuLaunchKernel(f, *grid, *block, shared, 0, 0, 0)[0])
def config(grid=(1, 1, 1), block=(1, 1, 1), shared=0, **attributes):
    made = cuda.CUlaunchConfig()
    made.gridDimX, made.gridDimY, made.gridDimZ = grid
    made.blockDimX, made.blockDimY, made.blockDimZ = block
    made.sharedMemBytes = shared
    listed = []
    for name, value in attributes.items():
        one = cuda.CUlaunchAttribute()
        one.id = getattr(A, "CU_LAUNCH_ATTRIBUTE_" + name)
        if name == "CLUSTER_DIMENSION":
            one.value.clusterDim.x, one.value.clusterDim.y, one.value.clusterDim.z = value
        elif name == "COOPERATIVE":
            one.value.cooperative = value
        elif name == "PRIORITY":
            one.value.priority = value
        elif name == "PROGRAMMATIC_STREAM_SERIALIZATION":
            one.value.programmaticStreamSerializationAllowed = value
        listed.append(one)
    made.attrs, made.numAttrs = listed, len(listed)
    return made
def launch_ex(f, **options): return int(cuda.cuLaunchKernelEx(config(**options), f, 0, 0)[0])
def get(f, name): return check(cuda.cuFuncGetAttribute(getattr(F, "CU_FUNC_ATTRIBUTE_" + name), f))
def put(f, name, value):
    return int(cuda.cuFuncSetAttribute(f, getattr(F, "CU_FUNC_ATTRIBUTE_" + name), value)[0])
"""


def test_launch_bounds_of_the_code_hold(machine: Machine) -> None:
    code = """
most, exact = function(kernel("k", ".maxntid 64, 2")), function(kernel("k", ".reqntid 32, 4, 1"))
same(launch(most, block=(128, 1, 1)), 0)
same(launch(most, block=(129, 1, 1)), LAUNCH_OUT_OF_RESOURCES)
same(launch(exact, block=(32, 4, 1)), 0)
same(launch(exact, block=(4, 32, 1)), INVALID_VALUE)
same(launch(function(kernel("k")), block=(1025, 1, 1)), INVALID_VALUE)
same(launch(most, grid=(2**31, 1, 1)), INVALID_VALUE)
same(launch(most, grid=(1, 65536, 1)), INVALID_VALUE)
"""
    run(machine, PRELUDE + code)


def test_registers_of_the_code_bound_a_block(machine: Machine) -> None:
    code = """
image = Cubin(90)
image.symbol("k", STT_FUNC, image.section(".text.k", bytes(16)), 16, ENTRY)
image.section(".nv.info", attribute(0x2F, struct.pack("<II", 1, 200)))
module = check(cuda.cuModuleLoadData(image.build()))
f = check(cuda.cuModuleGetFunction(module, b"k"))
say(threads=get(f, "MAX_THREADS_PER_BLOCK"), fits=launch(f, block=(256, 1, 1)),
    more=launch(f, block=(320, 1, 1)),
    resident=check(cuda.cuOccupancyMaxActiveBlocksPerMultiprocessor(f, 128, 0)),
    none=check(cuda.cuOccupancyMaxActiveBlocksPerMultiprocessor(f, 320, 0)))
"""
    # 200 registers for each of 32 threads are 25 units of 256; a scheduler's 16384 hold 2 warps.
    assert said_in(machine, PRELUDE + code) == {
        "threads": 256,
        "fits": SUCCESS,
        "more": OUT_OF_RESOURCES,
        "resident": 2,
        "none": 0,
    }


def test_shared_memory_is_bounded_with_what_the_code_has(machine: Machine) -> None:
    code = """
f = function(".shared .b8 own[1024]; " + kernel("k", "", "mov.u32 %r1, own; ret;"))
def available(blocks): return check(cuda.cuOccupancyAvailableDynamicSMemPerBlock(f, blocks, 128))
say(free=launch(f, shared=47 << 10), full=launch(f, shared=48 << 10),
    too_much=put(f, "MAX_DYNAMIC_SHARED_SIZE_BYTES", 232448 - 1023),
    most=put(f, "MAX_DYNAMIC_SHARED_SIZE_BYTES", 232448 - 1024),
    now=launch(f, shared=232448 - 1024),
    resident=[check(cuda.cuOccupancyMaxActiveBlocksPerMultiprocessor(f, 128, bytes))
              for bytes in (0, 20 << 10, 100 << 10)],
    available=[available(1), available(2)],
    too_many=int(cuda.cuOccupancyAvailableDynamicSMemPerBlock(f, 64, 1024)[0]))
"""
    # Of 228 KiB an SM each block takes its own 1 KiB, what is asked, and 1 KiB for the system.
    assert said_in(machine, PRELUDE + code) == {
        "free": SUCCESS,
        "full": INVALID_VALUE,
        "too_much": INVALID_VALUE,
        "most": SUCCESS,
        "now": SUCCESS,
        "resident": [16, 228 // 22, 2],
        "available": [226 << 10, (114 - 2) << 10],
        "too_many": INVALID_VALUE,
    }


def test_attributes_that_can_be_set_are_kept_and_others_refused(machine: Machine) -> None:
    code = """
f = function(kernel("k"))
names = ("PREFERRED_SHARED_MEMORY_CARVEOUT", "REQUIRED_CLUSTER_WIDTH",
         "NON_PORTABLE_CLUSTER_SIZE_ALLOWED", "CLUSTER_SCHEDULING_POLICY_PREFERENCE")
fixed = function(kernel("k", ".reqnctapercluster 4, 1, 1"))
same([get(f, name) for name in names], [-1, 0, 0, 0])
same([put(f, name, 1) for name in names], [0, 0, 0, 0])
same([get(f, name) for name in names], [1, 1, 1, 1])
same(put(f, names[0], 101), INVALID_VALUE)
same(put(f, "NUM_REGS", 16), INVALID_VALUE)
same(put(fixed, names[1], 2), NOT_PERMITTED)
same(get(fixed, names[1]), 4)
same(int(cuda.cuFuncSetAttribute(f, F.CU_FUNC_ATTRIBUTE_MAX, 0)[0]), INVALID_VALUE)
"""
    run(machine, PRELUDE + code)


def test_clusters_divide_the_grid_on_devices_that_have_them(machine: Machine) -> None:
    code = """
f, wide = function(kernel("k")), function(kernel("k"))
fixed, open_size = (function(kernel("k", text)) for text in
                    (".reqnctapercluster 4, 1, 1", ".explicitcluster"))
four, sixteen = (4, 1, 1), (16, 1, 1)
def most(f): return check(cuda.cuOccupancyMaxPotentialClusterSize(f, config()))
def active(f, **options): return cuda.cuOccupancyMaxActiveClusters(f, config(**options))
put(wide, "NON_PORTABLE_CLUSTER_SIZE_ALLOWED", 1)
say(divides=launch_ex(f, grid=(8, 1, 1), CLUSTER_DIMENSION=four),
    does_not=launch_ex(f, grid=(6, 1, 1), CLUSTER_DIMENSION=four),
    too_wide=launch_ex(f, grid=sixteen, CLUSTER_DIMENSION=sixteen),
    allowed=launch_ex(wide, grid=sixteen, CLUSTER_DIMENSION=sixteen),
    zero=launch_ex(f, CLUSTER_DIMENSION=(0, 1, 1)),
    fixed=[launch(fixed, grid=four), launch(fixed), launch_ex(fixed, grid=sixteen,
                                                              CLUSTER_DIMENSION=sixteen)],
    open=[launch(open_size), launch_ex(open_size, grid=four, CLUSTER_DIMENSION=four)],
    most=[most(f), most(wide), most(fixed)],
    active=check(active(f, grid=four, block=(1024, 1, 1), CLUSTER_DIMENSION=four)),
    unsaid=int(active(f)[0]))
"""
    assert said_in(machine, PRELUDE + code) == {
        "divides": SUCCESS,
        "does_not": CLUSTER_SIZE,
        "too_wide": CLUSTER_SIZE,
        "allowed": SUCCESS,
        "zero": INVALID_VALUE,
        "fixed": [SUCCESS, CLUSTER_SIZE, CLUSTER_SIZE],
        "open": [CLUSTER_SIZE, SUCCESS],
        "most": [8, 16, 4],
        "active": 2 * H100_SMS // 4,
        "unsaid": CLUSTER_SIZE,
    }


def test_older_devices_have_no_clusters(tmp_path: Path) -> None:
    code = """
f = function(kernel("k"))
say(code=launch_ex(f, grid=(4, 1, 1), CLUSTER_DIMENSION=(4, 1, 1)))
"""
    older = Machine.create([PROFILES["a100-80g"]], tmp_path / "m")

    assert said_in(older, PRELUDE + code) == {"code": CLUSTER_SIZE}


def test_cooperative_blocks_must_all_be_resident(machine: Machine) -> None:
    code = f"""
f = function(kernel("k"))
def ex(blocks): return launch_ex(f, grid=(blocks, 1, 1), block=(1024, 1, 1), COOPERATIVE=1)
def old(blocks):
    return int(cuda.cuLaunchCooperativeKernel(f, blocks, 1, 1, 1024, 1, 1, 0, 0, 0)[0])
most = {2 * H100_SMS}
say(ex=[ex(most), ex(most + 1)], old=[old(most), old(most + 1)],
    hints=launch_ex(f, PRIORITY=-1, PROGRAMMATIC_STREAM_SERIALIZATION=1),
    event=launch_ex(f, PROGRAMMATIC_EVENT=0))
"""
    assert said_in(machine, PRELUDE + code) == {
        "ex": [SUCCESS, TOO_LARGE],
        "old": [SUCCESS, TOO_LARGE],
        "hints": SUCCESS,
        "event": INVALID_VALUE,
    }


OLD_KIND = """
old = ctypes.CDLL("libcuda.so.1")
spin = check(cuda.cuModuleGetFunction(check(cuda.cuModuleLoadData(SPIN_PTX)), b"spin_ns"))
f, value = ctypes.c_void_p(int(spin)), ctypes.c_uint64(30_000_000)
"""


def test_the_old_kind_of_launch_takes_what_was_set_before(machine: Machine) -> None:
    code = """
same(old.cuLaunch(f), INVALID_VALUE)
codes = [old.cuFuncSetBlockShape(f, 8, 1, 1), old.cuFuncSetSharedSize(f, 64),
         old.cuParamSetSize(f, 8), old.cuParamSetv(f, 0, ctypes.byref(value), 8), old.cuLaunch(f),
         old.cuLaunchGrid(f, 2, 2)]
check(cuda.cuCtxSynchronize())
split = [old.cuParamSeti(f, 0, 1000), old.cuParamSeti(f, 4, 0),
         old.cuParamSetf(f, 8, ctypes.c_float(1.5)), old.cuLaunchGridAsync(f, 1, 1, None)]
check(cuda.cuCtxSynchronize())
same(codes, [0] * 6)
same(split, [0] * 4)
same(old.cuFuncSetBlockShape(f, 0, 1, 1), INVALID_VALUE)
same(old.cuParamSetv(f, 4090, ctypes.byref(value), 8), INVALID_VALUE)
same(old.cuParamSetSize(f, 5000), INVALID_VALUE)
"""
    run(machine, PRELUDE + OLD_KIND + code)
    (client,) = machine.books()[0].clients
    assert client.launches == 3
    assert client.busy_ns == 60_001_000


def test_a_launch_on_several_devices_names_each_once(tmp_path: Path) -> None:
    profile = replace(PROFILES["t4"], context_bytes=0)
    machine = Machine.create([profile] * 2, tmp_path / "m")
    code = """
def prepared(device):
    open_context(device)
    module = check(cuda.cuModuleLoadData(SPIN_PTX))
    return (int(check(cuda.cuModuleGetFunction(module, b"spin_ns"))),
            int(check(cuda.cuStreamCreate(0))))
arguments = (ctypes.c_void_p * 1)(ctypes.addressof(value))
def entry(function, stream):
    return struct.pack("<Q7I4xQQ", function, 1, 1, 1, 1, 1, 1, 0, stream,
                       ctypes.addressof(arguments))
def launch_all(*entries, flags=0):
    return old.cuLaunchCooperativeKernelMultiDevice(b"".join(entries), len(entries), flags)
one, two = entry(*prepared(0)), entry(*prepared(1))
codes = [launch_all(one, two), launch_all(one, one), launch_all(one, two, flags=4),
         launch_all(entry(*prepared(0)[:1], 0)), launch_all(one, two, one)]
for device in (0, 1):
    open_context(device)
    check(cuda.cuCtxSynchronize())
same(codes, [0] + [INVALID_VALUE] * 4)
"""
    run(machine, PRELUDE + OLD_KIND + code)
    assert [each.clients[0].launches for each in machine.books()] == [1, 1]


@pytest.mark.parametrize("call", ["cuFuncGetAttribute", "cuFuncLoad", "cuLaunchKernel"])
def test_a_handle_that_is_none_is_told_so(machine: Machine, call: str) -> None:
    code = f"""
block = ctypes.create_string_buffer(4096)
f = cuda.CUfunction(ctypes.addressof(block))
say(code=int({{
    "cuFuncGetAttribute": lambda: cuda.cuFuncGetAttribute(F.CU_FUNC_ATTRIBUTE_NUM_REGS, f),
    "cuFuncLoad": lambda: cuda.cuFuncLoad(f),
    "cuLaunchKernel": lambda: [launch(f)],
}}["{call}"]()[0]))
"""
    assert said_in(machine, PRELUDE + code) == {"code": INVALID_HANDLE}
