"""Several GPUs in one slice, in whatever order CUDA shows them: each call lands on its own."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from libvgpu.limits import ContainerLimits, DeviceLimit, Family
from libvgpu.region import create
from libvgpu.sim import PROFILES, Machine
from support.ended import printed
from support.lines import expect
from support.shim.slices import Slice
from support.sim.driver import driver_version, library_of

MIB = 1 << 20
LIMITS = (256 * MIB, 512 * MIB, 768 * MIB)
GPUS = 4  # the slice names all but the last
FULL = [2 * MIB, 2 * MIB, 0]  # what such a GPU shows: no total that a monitor cannot divide by
OUT_OF_MEMORY, NOT_INITIALIZED, INVALID_DEVICE = 2, 3, 101

PRELUDE = """
import ctypes, json, os, sys
import pynvml as nvml
from support.shim.cuda_client import *
check(driver.cuInit(0))
nvml.nvmlInit()
count = check(driver.cuDeviceGetCount())
handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
def say(value): print(json.dumps(value), flush=True)
def name(ordinal):
    b = check(driver.cuDeviceGetUuid(ordinal)).bytes.hex()
    return f"GPU-{b[:8]}-{b[8:12]}-{b[12:16]}-{b[16:20]}-{b[20:]}"
def shown():
    return [[m.total, m.used, m.free] for m in map(nvml.nvmlDeviceGetMemoryInfo, handles)]
def listed():
    return [[p.usedGpuMemory for p in nvml.nvmlDeviceGetComputeRunningProcesses(h)
             if p.pid == os.getpid()] for h in handles]
"""
FILL_ALL = """
answers = []
for ordinal in range(count):
    total = check(driver.cuDeviceTotalMem(ordinal))
    open_context(ordinal)
    before = check(driver.cuMemGetInfo())
    pieces, code = allocate_until_refused(32 << 20)
    answers.append([name(ordinal), total, before, len(pieces) << 20 + 5, code,
                    check(driver.cuMemGetInfo())])
say({"cuda": answers, "nvml": shown(), "processes": listed()})
"""


def run(
    part: Slice, code: str, visible: str | None = None, more: dict[str, str] | None = None
) -> Any:
    """Returns the JSON that a program printed under the slice."""
    environment = part.environment() | (more or {})
    environment.pop("CUDA_VISIBLE_DEVICES", None)
    if visible is not None:
        environment["CUDA_VISIBLE_DEVICES"] = visible
    return json.loads(printed(sys.executable, "-c", PRELUDE + code, env=environment))


@pytest.fixture
def part(tmp_path: Path) -> Slice:
    """A slice of three of four GPUs, a different limit on each, in another order than theirs."""
    profile = replace(PROFILES["h100-80g"], context_bytes=0)
    machine = Machine.create([profile] * GPUS, tmp_path / "machine", driver_version())
    devices = [DeviceLimit(d.uuid, b) for d, b in zip(machine.devices, LIMITS, strict=False)]
    create(tmp_path / "slice", ContainerLimits("many", Family.VGPU, tuple(reversed(devices))))
    return Slice(machine, tmp_path / "slice")


def by_index(part: Slice, order: tuple[int, ...]) -> str:
    return ",".join(map(str, order))


def by_uuid(part: Slice, order: tuple[int, ...]) -> str:
    return ",".join(part.machine.devices[i].uuid for i in order)


def by_prefix(part: Slice, order: tuple[int, ...]) -> str:
    uuids = [device.uuid for device in part.machine.devices]
    return ",".join(uuids[i][: shortest(uuids, i)] for i in order)


def shortest(uuids: list[str], index: int) -> int:
    """Returns how many characters of one name no other begins with."""
    return next(
        length
        for length in range(len("GPU-") + 1, len(uuids[index]) + 1)
        if sum(uuid.startswith(uuids[index][:length]) for uuid in uuids) == 1
    )


@pytest.mark.parametrize("named", [by_index, by_uuid, by_prefix])
@pytest.mark.parametrize("order", [(2, 0), (1, 2, 0)])
def test_each_limit_holds_on_its_gpu_in_any_order(
    part: Slice, named: Callable[[Slice, tuple[int, ...]], str], order: tuple[int, ...]
) -> None:
    said = run(part, FILL_ALL, named(part, order))

    assert said["cuda"] == [
        [
            part.machine.devices[i].uuid,
            LIMITS[i],
            [LIMITS[i], LIMITS[i]],
            LIMITS[i],
            OUT_OF_MEMORY,
            [0, LIMITS[i]],
        ]
        for i in order
    ]
    used = [LIMITS[i] if i in order else 0 for i in range(len(LIMITS))]
    free = [limit - bytes_ for limit, bytes_ in zip(LIMITS, used, strict=True)]
    assert said["nvml"] == [*map(list, zip(LIMITS, used, free, strict=True)), FULL]
    assert said["processes"] == [*([bytes_] if bytes_ else [] for bytes_ in used), []]
    assert [books.memory_used_bytes for books in part.machine.books()] == [0] * GPUS


def test_a_gpu_that_the_slice_does_not_name_gives_nothing(part: Slice) -> None:
    code = """
context = driver.cuDevicePrimaryCtxRetain(3)[0]
made = create_context(3)[0]
open_context(0)
say([int(context), int(made), check(driver.cuDeviceTotalMem(3)), shown()[3],
     [p.pid for p in nvml.nvmlDeviceGetComputeRunningProcesses(handles[3])],
     nvml.nvmlDeviceGetUtilizationRates(handles[3]).gpu, int(driver.cuMemAlloc(1 << 20)[0])])
"""
    stranger = subprocess.Popen(
        [sys.executable, "-c", PRELUDE + "open_context(3)\ncheck(driver.cuMemAlloc(1 << 20))\n"
         "say(0)\nsys.stdin.read()"],
        env=part.environment(shim=False), text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    with stranger:
        expect(stranger, "0")
        said = run(part, code)
        stranger.kill()

    assert said == [OUT_OF_MEMORY, OUT_OF_MEMORY, FULL[0], FULL, [], 0, 0]


def offset_in_driver(machine: Machine, symbol: str) -> int:
    """Returns where a function lies in libcuda.so.1, for calls past every hook."""
    listing = printed(
        "nm", "-D", "--defined-only", "--format=posix", str(library_of(machine, "libcuda.so.1"))
    )
    words = (line.split() for line in listing.splitlines())
    return next(int(address, 16) for name, _, address, *_ in words if name == symbol)


def test_in_a_context_that_came_past_the_shim_a_gpu_that_is_not_ours_has_nothing(
    part: Slice,
) -> None:
    code = f"""
maps = [line for line in open("/proc/self/maps") if "libcuda.so" in line]
address = min(int(line.split("-")[0], 16) for line in maps) + {
        offset_in_driver(part.machine, "cuDevicePrimaryCtxRetain")
    }
retain = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int)(address)
context = ctypes.c_void_p()
assert retain(ctypes.addressof(context), 3) == 0
check(driver.cuCtxSetCurrent(context.value))
spinner = Spinner(1000)
try:
    spinner.launch()
    launched = 0
except CudaError as error:
    launched = error.code
say([check(driver.cuMemGetInfo()), int(driver.cuMemAlloc(1)[0]), launched])
"""

    assert run(part, code) == [[0, FULL[0]], OUT_OF_MEMORY, INVALID_DEVICE]


def test_contexts_of_two_gpus_at_once_keep_their_memory_apart(part: Slice) -> None:
    code = """
contexts = [open_context(ordinal) for ordinal in range(2)]
held = []
for turn in range(3):
    for ordinal, context in enumerate(contexts):
        check(driver.cuCtxSetCurrent(context))
        held.append([ordinal, check(driver.cuMemAlloc((ordinal + 1) << 20))])
full = shown()
for ordinal, address in held[2:]:  # both are freed with the second one current
    check(driver.cuMemFree(address))
after = shown()
check(driver.cuDevicePrimaryCtxReset(0))
say([[m[1] for m in each][:2] for each in (full, after, shown())])
"""

    assert run(part, code) == [
        [3 * MIB, 6 * MIB],
        [MIB, 2 * MIB],
        [0, 2 * MIB],
    ]


def test_peer_access_charges_nobody_twice(part: Slice) -> None:
    code = """
contexts = [open_context(ordinal) for ordinal in range(2)]
far = check(driver.cuMemAlloc(2 << 20))
check(driver.cuCtxSetCurrent(contexts[0]))
near = check(driver.cuMemAlloc(2 << 20))
possible = check(driver.cuDeviceCanAccessPeer(0, 1))
check(driver.cuCtxEnablePeerAccess(contexts[1], 0))
check(driver.cuMemcpyDtoD(near, far, 2 << 20))
check(driver.cuMemFree(far))  # another GPU's memory
say([possible, [m[1] for m in shown()], int(driver.cuMemAlloc(255 << 20)[0])])
"""

    assert run(part, code, "1,0") == [1, [0, 2 * MIB, 0, FULL[1]], 0]


def test_a_child_forked_after_the_driver_was_initialised_takes_nothing_until_it_starts_anew(
    part: Slice,
) -> None:
    """The driver does not work in such a child; what is shown there stays the container's."""
    code = """
open_context(0)
check(driver.cuMemAlloc(5 << 20))
read, write = os.pipe()
child = os.fork()
if child == 0:
    os.close(read)
    os.dup2(write, 1)
    refused = int(driver.cuMemAlloc(1 << 20)[0]), int(driver.cuDevicePrimaryCtxRetain(1)[0])
    say([refused, [m[1] for m in shown()], listed()])
    os.execv(sys.executable, [sys.executable, "-c", os.environ["ANEW"]])
os.close(write)
lines = os.fdopen(read).read().splitlines()
assert os.waitpid(child, 0)[1] == 0
say([*map(json.loads, lines), [m[1] for m in shown()], listed()])
"""
    anew = """
open_context(1)
check(driver.cuMemAlloc(3 << 20))
say([[m[1] for m in shown()], listed()])
"""

    forked, started, after, own = run(part, code, "2,0,1", {"ANEW": PRELUDE + anew})

    assert forked == [[NOT_INITIALIZED, NOT_INITIALIZED], [0, 0, 5 * MIB, FULL[1]], [[]] * GPUS]
    assert started == [[3 * MIB, 0, 5 * MIB, FULL[1]], [[3 * MIB], [], [], []]]
    assert (after, own) == ([0, 0, 5 * MIB, FULL[1]], [[], [], [5 * MIB], []])
