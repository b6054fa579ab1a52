"""What NVML shows under a slice: the slice's memory, and the container's own processes."""

import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from libvgpu._native import ffi, lib
from libvgpu.limits import ContainerLimits, DeviceLimit, Family
from libvgpu.region import create
from libvgpu.sim import Machine
from support.lines import expect
from support.shim.served import Served
from support.shim.slices import Slice, SliceOf
from support.sim.nvml_programs import NVML_PRELUDE

MIB, GIB = 1 << 20, 1 << 30
NOT_AVAILABLE = 0xFFFFFFFF

HOLD = """
import sys
from support.shim.cuda_client import *
check(driver.cuInit(0))
for device, size in enumerate(map(int, sys.argv[1:])):
    if size:
        open_context(device)
        check(driver.cuMemAlloc(size))
print("held", flush=True)
sys.stdin.readline()
"""
SHARING = """
open_context()
def allocate(bytes): return int(check(driver.cuMemAlloc(bytes)))
def export(address): return hexadecimal(check(driver.cuIpcGetMemHandle(address)))
def open_handle(text):
    return int(check(driver.cuIpcOpenMemHandle(opaque(driver.CUipcMemHandle, text), 1)))
"""
LISTS = """
import ctypes, json
def listed(kind, version, handle):
    function = nvml._nvmlGetFunctionPointer(f"nvmlDeviceGet{kind}RunningProcesses{version}")
    entry = nvml.c_nvmlProcessInfo_v2_t if version else ProcessInfoV1
    infos, count = (entry * 64)(), ctypes.c_uint(64)
    assert function(handle, ctypes.byref(count), infos) == 0
    return sorted([info.pid, info.usedGpuMemory, getattr(info, "gpuInstanceId", -1),
                   getattr(info, "computeInstanceId", -1)] for info in infos[:count.value])
class ProcessInfoV1(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("usedGpuMemory", ctypes.c_ulonglong)]
KINDS, VERSIONS = ("Compute", "Graphics", "MPSCompute"), ("", "_v2", "_v3")
"""


def seen(part: Slice, code: str, *arguments: str, shim: bool = True) -> Any:
    """Returns the JSON that an NVML program printed."""
    return json.loads(" ".join(part.run(NVML_PRELUDE + LISTS + code, *arguments, shim=shim)))


def hold(part: Slice, *sizes: int) -> subprocess.Popen[str]:
    """Starts a process that holds so many bytes of each device."""
    process = part.start(HOLD, *map(str, sizes))
    expect(process, "held")
    return process


@pytest.fixture
def neighbours(two_gpus: Machine, tmp_path: Path) -> Iterator[tuple[Slice, Slice]]:
    """Two slices of the same two GPUs."""
    made = []
    for name in ("ours", "theirs"):
        devices = tuple(DeviceLimit(each.uuid, 2 * GIB) for each in two_gpus.devices)
        create(tmp_path / name, ContainerLimits(name, Family.VGPU, devices))
        made.append(Slice(two_gpus, tmp_path / name))
    yield made[0], made[1]
    for part in made:
        part.close()


def change_usage(part: Slice, change: Callable[[Any], None]) -> None:
    """Writes into `usage` as a tenant's program could."""
    path = part.directory / "usage"
    image = bytearray(path.read_bytes())
    change(ffi.from_buffer("unsigned char[]", image))
    with path.open("r+b") as file:
        file.write(image)


# ---- memory --------------------------------------------------------------------------------------

MEMORY = """
one, two = (nvml.nvmlDeviceGetMemoryInfo(handles[0], version=v) for v in (None, nvml.nvmlMemory_v2))
bar = nvml.nvmlDeviceGetBAR1MemoryInfo(handles[0])
print(json.dumps([[m.total, m.used, m.free] for m in (one, two)] + [two.reserved]
                 + [bar.bar1Total, bar.bar1Free, bar.bar1Used]))
"""


def test_who_only_looks_sees_the_slice_and_takes_no_place_in_it(part: Slice) -> None:
    shown = seen(part, MEMORY)

    *_, bar_total, bar_free, bar_used = seen(part, MEMORY, shim=False)
    assert shown == [[GIB, 0, GIB]] * 2 + [0, bar_total, bar_free, bar_used]
    assert part.usage().processes == ()


def test_a_limit_below_the_use_shows_more_used_than_there_is(part: Slice) -> None:
    hold(part, GIB)
    part.change(memory_limit_bytes=GIB // 4)

    shown = seen(part, MEMORY)

    assert shown[:2] == [[GIB // 4, GIB, 0]] * 2


def test_a_spoilt_total_never_shows_more_than_the_gpu_has(machine: Machine, part: Slice) -> None:
    def underflow(usage: Any) -> None:
        lib.usage_device(usage, 0).total_low = lib.LEDGER_MAX_BYTES

    change_usage(part, underflow)

    shown = seen(part, MEMORY)

    assert shown[:2] == [[GIB, machine.devices[0].profile.memory_bytes, 0]] * 2


def test_what_is_kept_in_host_memory_is_free_beyond_what_the_gpu_has(
    machine: Machine, slice_of: SliceOf
) -> None:
    physical = machine.devices[0].profile.memory_bytes
    part = slice_of(machine, memory_bytes=2 * physical)
    part.change(physical_bytes=physical)

    shown = seen(part, MEMORY)

    assert shown[:2] == [[2 * physical, 0, 2 * physical]] * 2


def test_where_the_slice_cannot_be_read_one_full_block_is_shown(part: Slice) -> None:
    hold(part, MIB)
    (part.directory / "limits").chmod(0o644)
    (part.directory / "limits").write_bytes(b"damaged")
    code = """
m = nvml.nvmlDeviceGetMemoryInfo(handles[0])
print(json.dumps([m.total, m.used, m.free, listed("Compute", "_v3", handles[0]),
                  nvml.nvmlDeviceGetUtilizationRates(handles[0]).gpu]))
"""

    assert seen(part, code) == [2 * MIB, 2 * MIB, 0, [], 0]


# ---- processes -----------------------------------------------------------------------------------

ALL_LISTS = """
print(json.dumps([[[listed(kind, version, handle) for handle in handles] for version in VERSIONS]
                  for kind in KINDS]))
"""


def test_lists_hold_the_containers_own_processes_device_by_device(
    neighbours: tuple[Slice, Slice],
) -> None:
    ours, theirs = neighbours
    first, both = hold(ours, 3 * MIB), hold(ours, MIB, 2 * MIB)
    stranger = hold(theirs, 4 * MIB, 4 * MIB)

    compute, graphics, mps = seen(ours, ALL_LISTS)

    books = [{c.pid: c.memory_bytes for c in b.clients} for b in ours.machine.books()]
    expected = [
        sorted([p.pid, books[0][p.pid]] for p in (first, both)),
        [[both.pid, books[1][both.pid]]],
    ]
    short = [[[*row, -1, -1] for row in rows] for rows in expected]
    full = [[[*row, NOT_AVAILABLE, NOT_AVAILABLE] for row in rows] for rows in expected]
    assert compute == [short, full, full]
    assert graphics == mps == [[[], []]] * 3
    assert stranger.pid in {row[0] for row in seen(ours, ALL_LISTS, shim=False)[0][0][0]}


def test_the_detailed_list_is_the_same_one(neighbours: tuple[Slice, Slice]) -> None:
    ours, theirs = neighbours
    own = hold(ours, 3 * MIB)
    hold(theirs, 4 * MIB)
    code = """
class Detail(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong), ("gpu", ctypes.c_uint),
                ("compute", ctypes.c_uint), ("protected", ctypes.c_ulonglong)]
class Details(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint), ("mode", ctypes.c_uint), ("count", ctypes.c_uint),
                ("entries", ctypes.POINTER(Detail))]
function = nvml._nvmlGetFunctionPointer("nvmlDeviceGetRunningProcessDetailList")
def ask(mode, room, version=1 << 24 | ctypes.sizeof(Details)):
    entries = (Detail * 8)()
    details = Details(version, mode, room, entries)
    code = function(handles[0], ctypes.byref(details))
    return [code, details.count] + [[e.pid, e.used, e.gpu] for e in entries if e.pid]
print(json.dumps([ask(0, 8), ask(1, 8), ask(2, 8), ask(3, 1), ask(0, 0), ask(4, 8)[0],
                  ask(0, 8, version=7)[0]]))
"""

    answers = seen(ours, code)

    entry = [own.pid, 3 * MIB, NOT_AVAILABLE]
    assert answers == [[0, 1, entry], [0, 0], [0, 0], [0, 1, entry], [7, 1], 2, 2]


def test_a_list_that_is_too_short_is_told_how_many_there_are(part: Slice) -> None:
    code = """
def ask(room, null=False):
    count, infos = ctypes.c_uint(room), (nvml.c_nvmlProcessInfo_v2_t * 8)()
    function = nvml._nvmlGetFunctionPointer("nvmlDeviceGetComputeRunningProcesses_v3")
    code = function(handles[0], ctypes.byref(count), None if null else infos)
    return [code, count.value, sum(info.pid != 0 for info in infos)]
wild = nvml._nvmlGetFunctionPointer("nvmlDeviceGetComputeRunningProcesses_v3")
print(json.dumps([ask(0, null=True), ask(1)[:2], ask(2), ask(8),
                  wild(handles[0], None, None), wild(None, ctypes.byref(ctypes.c_uint(0)), None)]))
nvml.nvmlShutdown()
assert wild(handles[0], ctypes.byref(ctypes.c_uint(0)), None) == 1
"""

    nobody = seen(part, code)
    for _ in range(2):
        hold(part, MIB)
    two = seen(part, code)

    assert nobody == [[0, 0, 0], [0, 0], [0, 0, 0], [0, 0, 0], 2, 2]
    assert two == [[7, 2, 0], [7, 2], [0, 2, 2], [0, 2, 2], 2, 2]


def test_a_list_that_is_left_out_is_answered_as_by_nvml(part: Slice) -> None:
    """As documented: without a list only how many there are can be asked, from 0 on."""
    code = """
def answer(kind, version, count):
    function = nvml._nvmlGetFunctionPointer(f"nvmlDeviceGet{kind}RunningProcesses{version}")
    return function(handles[0], ctypes.byref(count) if count is not None else None, None)
print(json.dumps([answer(kind, version, count) for kind in KINDS for version in VERSIONS
                  for count in (None, ctypes.c_uint(0), ctypes.c_uint(4))]))
"""

    assert seen(part, code) == seen(part, code, shim=False) == [2, 0, 2] * 9


def test_the_dead_are_left_out_before_anybody_cleans_their_place(part: Slice) -> None:
    living, dead = hold(part, MIB), hold(part, 2 * MIB)
    dead.send_signal(signal.SIGKILL)
    dead.wait()

    code = 'print(json.dumps(listed("Compute", "_v3", handles[0])))'
    first = seen(part, code)

    assert [row[:2] for row in first] == [[living.pid, MIB]]


def test_a_shared_piece_of_memory_is_no_process_and_its_makers(part: Slice) -> None:
    exporter, importer = Served(part, SHARING), Served(part, SHARING)
    exporter.ask(f"allocate({MIB})")
    importer.ask(f"allocate({MIB})")
    handle = exporter.ask(f"export(allocate({4 * MIB}))")
    importer.ask(f"open_handle({handle!r})")
    code = 'print(json.dumps([row[:2] for row in listed("Compute", "_v3", handles[0])]))'
    pids = [each.ask("os.getpid()") for each in (exporter, importer)]

    both = seen(part, code)
    exporter.kill()
    alone = seen(part, code)

    assert both == sorted([[pids[0], 5 * MIB], [pids[1], MIB]])
    assert alone == [[pids[1], MIB]]  # what it keeps of the dead one's is the container's


def test_a_place_without_a_pid_is_nobody(part: Slice) -> None:
    hold(part, MIB)

    def forget_pid(usage: Any) -> None:
        lib.usage_slot(usage, 0).pid = 0

    change_usage(part, forget_pid)
    code = """
print(json.dumps([listed("Compute", "_v3", handles[0]),
                  nvml.nvmlDeviceGetMemoryInfo(handles[0]).used]))
"""

    assert seen(part, code) == [[], MIB]


@pytest.mark.parametrize("family", Family)
def test_under_mps_they_are_clients_of_mps_too(
    machine: Machine, tmp_path: Path, family: Family, part: Slice
) -> None:
    part.directory = tmp_path / "mps-slice"
    limit = DeviceLimit(
        machine.devices[0].uuid, GIB, mps_pipe_directory=str(tmp_path / "no-daemon")
    )
    create(part.directory, ContainerLimits("mps", family, (limit,)))
    process = hold(part, MIB)

    compute, graphics, mps = seen(part, ALL_LISTS)

    assert [row[:2] for row in compute[2][0]] == [[process.pid, MIB]]
    assert mps == compute
    assert graphics == [[[]]] * 3
