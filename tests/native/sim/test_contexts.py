"""Contexts of the simulated GPU: limits, usage counts, green contexts, and device attributes."""

from pathlib import Path

import pytest

from libvgpu.sim import PROFILES, Machine
from support.sim.programs import run, said_in

MIB = 1 << 20
INVALID_VALUE, OUT_OF_MEMORY, UNSUPPORTED_LIMIT = 1, 2, 215
H100 = PROFILES["h100-80g"]

PRELUDE = """
def free(): return check(cuda.cuMemGetInfo())[0]
L = cuda.CUlimit
def limit(name): return getattr(L, "CU_LIMIT_" + name)
def put(name, value): return int(cuda.cuCtxSetLimit(limit(name), value)[0])
def get(name): return check(cuda.cuCtxGetLimit(limit(name)))
context = open_context()
"""


def test_a_larger_heap_is_device_memory(machine: Machine) -> None:
    code = """
before = free()
codes = [put("MALLOC_HEAP_SIZE", 108 << 20), put("PRINTF_FIFO_SIZE", 5 << 20)]
same(before - free(), 104 * MIB)
codes += [put("MALLOC_HEAP_SIZE", before + (8 << 20)), put("MALLOC_HEAP_SIZE", 2 * before)]
kept, still = get("MALLOC_HEAP_SIZE"), before - free()
codes += [put("MALLOC_HEAP_SIZE", 1 << 20)]
same(before - free(), 4 * MIB)
check(cuda.cuDevicePrimaryCtxReset(0))
context = check(cuda.cuDevicePrimaryCtxRetain(0))
check(cuda.cuCtxSetCurrent(context))
same(codes, [0, 0, OUT_OF_MEMORY, OUT_OF_MEMORY, 0])
same(kept, 108 * MIB)
same(still, 104 * MIB)
same(before - free(), 0)
same([get("MALLOC_HEAP_SIZE"), get("PRINTF_FIFO_SIZE")], [8 * MIB, MIB])
"""
    run(machine, PRELUDE + code)


def test_a_larger_stack_is_device_memory_for_every_resident_thread(machine: Machine) -> None:
    code = """
before, start = free(), get("STACK_SIZE")
steps = []
for size in (start + 64, start + 16, start // 2, start + 1024):
    steps.append([put("STACK_SIZE", size), get("STACK_SIZE") == size, before - free()])
refused = [put("STACK_SIZE", 512 << 10), get("STACK_SIZE") - start, before - free()]
created = check(cuda.cuCtxCreate(None, 0, 0))
own = [put("STACK_SIZE", start + 8), before - free()]
check(cuda.cuCtxDestroy(created))
destroyed = before - free()
check(cuda.cuDevicePrimaryCtxReset(0))
check(cuda.cuCtxSetCurrent(check(cuda.cuDevicePrimaryCtxRetain(0))))
say(steps=steps, refused=refused, own=own, destroyed=destroyed, left=before - free(),
    fresh=get("STACK_SIZE") - start)
"""
    threads = H100.sm_count * H100.threads_per_sm
    assert said_in(machine, PRELUDE + code) == {
        "steps": [
            [0, True, 64 * threads],
            [0, True, 16 * threads],
            [0, True, 0],
            [0, True, 1024 * threads],
        ],
        "refused": [OUT_OF_MEMORY, 1024, 1024 * threads],
        "own": [0, 1032 * threads],
        "destroyed": 1024 * threads,
        "left": 0,
        "fresh": 0,
    }


def test_a_heap_grows_into_the_last_free_byte(machine: Machine) -> None:
    code = """
check(cuda.cuMemAlloc(free() - 6 * MIB))
say(codes=[put("MALLOC_HEAP_SIZE", size * MIB) for size in (12, 14, 15)], free=free(),
    heap=get("MALLOC_HEAP_SIZE"))
"""
    assert said_in(machine, PRELUDE + code) == {
        "codes": [0, 0, OUT_OF_MEMORY],
        "free": 0,
        "heap": 14 * MIB,
    }


def test_other_limits_are_bounded_as_documented(machine: Machine) -> None:
    code = """
fetch = put("MAX_L2_FETCH_GRANULARITY", 1000), get("MAX_L2_FETCH_GRANULARITY")
cache = put("PERSISTING_L2_CACHE_SIZE", 1 << 40), get("PERSISTING_L2_CACHE_SIZE")
say(stack=[put("STACK_SIZE", 4096), get("STACK_SIZE"), put("STACK_SIZE", 1 << 20)],
    fetch=fetch, cache=cache, pending=get("DEV_RUNTIME_PENDING_LAUNCH_COUNT"),
    depth=put("DEV_RUNTIME_SYNC_DEPTH", 4), shared=[put("SHMEM_SIZE", 1), get("SHMEM_SIZE")],
    graphics=[put("CIG_ENABLED", 1), get("CIG_ENABLED")])
"""
    assert said_in(machine, PRELUDE + code) == {
        "stack": [0, 4096, INVALID_VALUE],
        "fetch": [0, 128],
        "cache": [0, H100.l2_bytes],
        "pending": 2048,
        "depth": UNSUPPORTED_LIMIT,
        "shared": [UNSUPPORTED_LIMIT, H100.shared_bytes_per_block],
        "graphics": [UNSUPPORTED_LIMIT, 0],
    }


def test_devices_before_hopper_bound_the_depth_of_synchronisation(tmp_path: Path) -> None:
    older = Machine.create([PROFILES["a100-80g"]], tmp_path / "m")
    code = """
say(before=get("DEV_RUNTIME_SYNC_DEPTH"), codes=[put("DEV_RUNTIME_SYNC_DEPTH", n)
    for n in (4, 25)], after=get("DEV_RUNTIME_SYNC_DEPTH"))
"""
    assert said_in(older, PRELUDE + code) == {"before": 2, "codes": [0, INVALID_VALUE], "after": 4}


def test_a_context_ends_with_its_last_detachment(costly_machine: Machine) -> None:
    code = """
before = free()
created = check(cuda.cuCtxCreate(None, 0, 0))
same(int(check(cuda.cuCtxAttach(0))) == int(created), True)
same(int(cuda.cuCtxAttach(1)[0]), INVALID_VALUE)
check(cuda.cuCtxDetach(created))
same(free() < before, True)
check(cuda.cuCtxDetach(created))
same(int(check(cuda.cuCtxGetCurrent())) == int(context), True)
same(before - free(), 0)
same(int(cuda.cuCtxDetach(context)[0]), INVALID_CONTEXT)
same(int(cuda.cuCtxDetach(created)[0]), INVALID_CONTEXT)
"""
    run(costly_machine, PRELUDE + code)


def test_what_little_there_is_to_set_of_a_context(machine: Machine) -> None:
    code = """
T = cuda.CUexecAffinityType.CU_EXEC_AFFINITY_TYPE_SM_COUNT
B = cuda.CUsharedconfig
check(cuda.cuCtxSetFlags(4))
say(flags=check(cuda.cuCtxGetFlags()), wrong=int(cuda.cuCtxSetFlags(1 << 12)[0]),
    affinity=check(cuda.cuCtxGetExecAffinity(T)).param.smCount.val,
    supported=check(cuda.cuDeviceGetExecAffinitySupport(T, 0)),
    bank=int(check(cuda.cuCtxGetSharedMemConfig())),
    set=int(cuda.cuCtxSetSharedMemConfig(B.CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE)[0]),
    reset=int(cuda.cuCtxResetPersistingL2Cache()[0]),
    profiler=[int(cuda.cuProfilerStart()[0]), int(cuda.cuProfilerStop()[0])])
"""
    assert said_in(machine, PRELUDE + code) == {
        "flags": 4,
        "wrong": INVALID_VALUE,
        "affinity": H100.sm_count,
        "supported": 0,
        "bank": 1,
        "set": 0,
        "reset": 0,
        "profiler": [0, 0],
    }


GREEN = """
SM = cuda.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM
whole = check(cuda.cuDeviceGetDevResource(0, SM))
def split(groups, least, flags=0, of=whole):
    return cuda.cuDevSmResourceSplitByCount(groups, of, flags, least)
"""


@pytest.mark.parametrize(
    ("profile", "least", "flags", "size", "groups"),
    [
        ("h100-80g", 9, 0, 16, 8),
        ("h100-80g", 9, 1, 9, 14),
        ("h100-80g", 0, 0, 8, 16),
        ("a100-80g", 3, 0, 4, 27),
        ("a100-80g", 5, 0, 6, 18),
        ("t4", 40, 0, 40, 1),
    ],
)
def test_sms_are_split_in_the_units_of_the_model(
    tmp_path: Path, profile: str, least: int, flags: int, size: int, groups: int
) -> None:
    machine = Machine.create([PROFILES[profile]], tmp_path / "m")
    code = f"""
_, made, count, rest = split({groups + 3}, {least}, {flags})
say(count=count, sizes=sorted({{each.sm.smCount for each in made[:count]}}), all=whole.sm.smCount,
    rest=rest.sm.smCount, too_many=int(split(1, whole.sm.smCount + 1)[0]))
"""
    sms = PROFILES[profile].sm_count

    assert said_in(machine, PRELUDE + GREEN + code) == {
        "count": groups,
        "sizes": [size],
        "all": sms,
        "rest": sms - groups * size,
        "too_many": INVALID_VALUE,
    }


def test_a_green_context_costs_one_and_works_like_one(costly_machine: Machine) -> None:
    code = """
before = free()
_, made, count, rest = split(1, 16)
described = check(cuda.cuDevResourceGenerateDesc(made, 1))
green = check(cuda.cuGreenCtxCreate(described, 0, 1))
cost = before - free()
current = int(check(cuda.cuCtxGetCurrent())) == int(context)
stream = check(cuda.cuGreenCtxStreamCreate(green, 1, 0))
blocking = int(cuda.cuGreenCtxStreamCreate(green, 0, 0)[0])
module = check(cuda.cuModuleLoadData(SPIN_PTX))
function = check(cuda.cuModuleGetFunction(module, b"spin_ns"))
event = check(cuda.cuEventCreate(0))
argument = ctypes.c_ulonglong(1000)
arguments = (ctypes.c_void_p * 1)(ctypes.addressof(argument))
launch = int(cuda.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream,
                                 ctypes.addressof(arguments), 0)[0])
check(cuda.cuStreamSynchronize(stream))
events = [int(cuda.cuGreenCtxRecordEvent(green, event)[0]),
          int(cuda.cuGreenCtxWaitEvent(green, event)[0])]
as_context = check(cuda.cuCtxFromGreenCtx(green))
sms = [check(cuda.cuGreenCtxGetDevResource(green, SM)).sm.smCount,
       check(cuda.cuCtxGetDevResource(as_context, SM)).sm.smCount,
       check(cuda.cuCtxGetDevResource(context, SM)).sm.smCount]
belongs = int(check(cuda.cuStreamGetGreenCtx(stream))) == int(green)
both = [int(each) for each in check(cuda.cuStreamGetCtx_v2(stream))]
plain = [int(each) for each in check(cuda.cuStreamGetCtx_v2(0))]
belongs = belongs and both == [int(context), int(green)] and plain == [int(context), 0]
check(cuda.cuGreenCtxDestroy(green))
say(cost=cost, current=current, blocking=blocking, launch=launch, events=events, sms=sms,
    belongs=belongs, left=before - free(), handle=int(cuda.cuGreenCtxDestroy(0)[0]))
"""
    assert said_in(costly_machine, PRELUDE + GREEN + code) == {
        "cost": H100.context_bytes,
        "current": True,
        "blocking": INVALID_VALUE,
        "launch": 0,
        "events": [0, 0],
        "sms": [16, 16, H100.sm_count],
        "belongs": True,
        "left": 0,
        "handle": INVALID_VALUE,
    }


def test_resources_that_do_not_go_together_are_refused(tmp_path: Path) -> None:
    machine = Machine.create([PROFILES["t4"]] * 2, tmp_path / "m")
    code = """
T = cuda.CUdevResourceType
other = check(cuda.cuDeviceGetDevResource(1, SM))
def describe(*resources): return int(cuda.cuDevResourceGenerateDesc(resources, len(resources))[0])
_, made, count, rest = split(2, 20)
_, mine = cuda.cuDevResourceGenerateDesc([whole], 1)
same(describe(made[0], other), INVALID_RESOURCE_CONFIGURATION)
same(describe(*made[:2]), 0)
same(describe(whole, whole), INVALID_RESOURCE_CONFIGURATION)
same(int(cuda.cuDeviceGetDevResource(0, T.CU_DEV_RESOURCE_TYPE_INVALID)[0]), INVALID_RESOURCE_TYPE)
same(int(cuda.cuGreenCtxCreate(mine, 1, 1)[0]), INVALID_VALUE)
same(describe(rest), INVALID_RESOURCE_TYPE)
"""
    run(machine, PRELUDE + GREEN + code)


@pytest.mark.parametrize(
    ("profile", "clusters", "reserved", "ratio", "window"),
    [
        ("h100-80g", 1, 1024, 2, True),
        ("a100-40g", 0, 1024, 2, True),
        ("l40s", 0, 1024, 64, True),
        ("t4", 0, 0, 32, False),
    ],
)
def test_attributes_of_a_device_are_those_of_its_model(
    tmp_path: Path, profile: str, clusters: int, reserved: int, ratio: int, window: bool
) -> None:
    machine = Machine.create([PROFILES[profile]], tmp_path / "m")
    code = """
D = cuda.CUdevice_attribute
def get(name): return check(cuda.cuDeviceGetAttribute(getattr(D, "CU_DEVICE_ATTRIBUTE_" + name), 0))
raw = ctypes.CDLL("libcuda.so.1").cuDeviceGetAttribute
value = ctypes.c_int(-7)
answered = [raw(ctypes.byref(value), number, 0) for number in range(1, 148)]
say(clusters=get("CLUSTER_LAUNCH"), reserved=get("RESERVED_SHARED_MEMORY_PER_BLOCK"),
    ratio=get("SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO"),
    window=get("MAX_ACCESS_POLICY_WINDOW_SIZE") > 0, texture=get("MAXIMUM_TEXTURE2D_WIDTH"),
    linear=check(cuda.cuDeviceGetTexture1DLinearMaxWidth(
        cuda.CUarray_format.CU_AD_FORMAT_FLOAT, 1, 0)),
    operations=get("CAN_USE_64_BIT_STREAM_MEM_OPS_V1"), answered=set(answered) == {0},
    beyond=[raw(ctypes.byref(value), number, 0) for number in (0, 148, -1)])
"""
    assert said_in(machine, PRELUDE + code) == {
        "clusters": clusters,
        "reserved": reserved,
        "ratio": ratio,
        "window": window,
        "texture": 131072,
        "linear": 1 << 28,
        "operations": 0,
        "answered": True,
        "beyond": [INVALID_VALUE] * 3,
    }
