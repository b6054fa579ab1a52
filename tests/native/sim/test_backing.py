"""Host memory behind the bytes of simulated GPUs: counted, capped, and given back."""

import json
from pathlib import Path

import pytest

from libvgpu.errors import UsageError
from libvgpu.sim import PROFILES, Machine
from support.lines import next_line
from support.sim.programs import said_in, start
from support.waiting import PATIENCE_S

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

PROGRAM = """
from libvgpu.sim import Machine
from pathlib import Path
open_context()
machine = Machine.open(Path(os.environ["VGPU_SIM_MACHINE"]))
def backed(): return machine.books()[0].backed_bytes
def resident(): return int(open("/proc/self/statm").read().split()[1]) * 4096
def alloc(size): return int(check(cuda.cuMemAlloc(size)))
def fill(address, value, size): return int(cuda.cuMemsetD8(address, value, size)[0])
def read(address, size):
    back = bytearray(size)
    check(cuda.cuMemcpyDtoH(back, address, size))
    return bytes(back)
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
"""


def capped(monkeypatch: pytest.MonkeyPatch, directory: Path, size: str) -> Machine:
    monkeypatch.setenv("VGPU_SIM_HOST_MEMORY", size)
    return Machine.create([PROFILES["h100-80g"]] * 2, directory)


def test_filling_a_whole_gpu_with_zero_takes_no_host_memory(machine: Machine) -> None:
    code = """
size = check(cuda.cuMemGetInfo())[0]
address, before = alloc(size), resident()
check(cuda.cuMemsetD32(address, 0, size // 4))
check(cuda.cuMemsetD2D8(address + 5, 1 << 20, 0, 1 << 19, size >> 20))
say(size=size, backed=backed(), taken=resident() - before,
    zero=[read(address + at, 9) == bytes(9) for at in (0, size // 2 - 3, size - 9)])
"""
    said = said_in(machine, PROGRAM + code)

    assert said["size"] == machine.devices[0].profile.memory_bytes
    assert said["backed"] == 0
    assert said["taken"] < 64 * MIB
    assert said["zero"] == [True] * 3


def test_a_write_counts_the_granules_that_it_touches_first(machine: Machine) -> None:
    code = """
large, small = alloc(GIB), alloc(100)
counts = []
def count(): counts.append(backed())
count()
fill(large + 5, 7, 1); count()
fill(large + 9, 8, 1000); count()
check(cuda.cuMemcpyHtoD(large + 3 * 65536 - 1, b"xy", 2)); count()
fill(small, 7, 100); count()
check(cuda.cuMemcpyDtoD(large + GIB // 2, large, MIB)); count()
fill(large, 0, GIB); count()
check(cuda.cuMemFree(large)); count()
check(cuda.cuMemFree(small)); count()
say(counts=counts)
"""
    assert said_in(machine, PROGRAM + code)["counts"] == [
        0,
        64 * KIB,
        64 * KIB,
        192 * KIB,
        196 * KIB,
        196 * KIB + MIB,
        196 * KIB + MIB,
        4 * KIB,
        0,
    ]


def test_rows_count_what_they_touch_and_what_they_share_once(machine: Machine) -> None:
    code = """
address, counts = alloc(64 * MIB), []
def rows(at, pitch, width, height):
    before = backed()
    check(cuda.cuMemsetD2D8(address + at, pitch, 7, width, height))
    counts.append(backed() - before)
rows(0, MIB, 4096, 10)
rows(16 * MIB, 100, 100, 1000)
rows(32 * MIB, 65536 + 512, 65536, 3)
say(counts=counts)
"""
    said = said_in(machine, PROGRAM + code)
    assert said["counts"] == [10 * 64 * KIB, 128 * KIB, 4 * 64 * KIB]


def test_threads_count_a_granule_once(machine: Machine) -> None:
    code = """
import threading
context, address = open_context(), alloc(16 * MIB)
start = threading.Barrier(4)
def work(i):
    check(cuda.cuCtxSetCurrent(context))
    start.wait()
    for at in range(0, 16 * MIB, 32 * KIB):
        check(cuda.cuMemsetD8(address + at + i * 8 * KIB, i + 1, 8 * KIB))
threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
check(cuda.cuCtxSynchronize())
after, full = read(address, 16 * MIB), backed()
check(cuda.cuMemFree(address))
say(bytes=[after.count(i + 1) for i in range(4)], full=full, freed=backed())
"""
    assert said_in(machine, PROGRAM + code) == {
        "bytes": [4 * MIB] * 4,
        "full": 16 * MIB,
        "freed": 0,
    }


def test_pools_arrays_and_managed_memory_count_as_well(machine: Machine) -> None:
    code = """
from support.shim.cuda_arrays import *
counts = []
pooled = check(cuda.cuMemAllocAsync(MIB, 0))
check(cuda.cuMemsetD8Async(pooled, 7, MIB, 0)); counts.append(backed())
flat = array(1024, 1024)
check(cuda.cuCtxSynchronize())
copy_2d(flat, os.urandom(1024 * 64), (1024, 64), srcPitch=1024); counts.append(backed())
managed = check(cuda.cuMemAllocManaged(MIB, 1))
fill(managed, 7, 1); counts.append(backed())
check(cuda.cuMemFreeAsync(pooled, 0)); counts.append(backed())
check(cuda.cuArrayDestroy(flat)); counts.append(backed())
fill(alloc(MIB), 7, MIB); counts.append(backed())
check(cuda.cuDevicePrimaryCtxReset(0)); counts.append(backed())
say(counts=counts)
"""
    assert said_in(machine, PROGRAM + code)["counts"] == [
        MIB,
        MIB + 64 * KIB,
        MIB + 128 * KIB,
        128 * KIB,
        64 * KIB,
        MIB + 64 * KIB,
        0,
    ]


def test_a_dead_process_gives_its_host_memory_back(machine: Machine) -> None:
    program = start(
        machine, PROGRAM + "fill(alloc(MIB), 7, MIB); say(backed=backed()); time.sleep(60)"
    )
    assert json.loads(next_line(program)) == {"backed": MIB}
    assert machine.books()[0].backed_bytes == MIB

    program.kill()
    program.wait(PATIENCE_S)

    assert machine.books()[0].backed_bytes == 0


def test_a_zero_fill_clears_what_was_there_whether_it_counts_or_not(machine: Machine) -> None:
    code = """
kept = alloc(MIB)
fill(kept, 7, MIB)
check(cuda.cuMemFree(kept))
again = alloc(MIB)
old = read(again, MIB)
check(cuda.cuMemsetD8(again + 100, 0, MIB - 200))
edges = read(again, MIB) == old[:100] + bytes(MIB - 200) + old[MIB - 100:]
managed = int(check(cuda.cuMemAllocManaged(MIB, 1)))
ctypes.memset(managed, 9, MIB)
check(cuda.cuMemsetD8(managed + 10, 0, 20))
check(cuda.cuMemsetD8(managed + 8000, 0, 300000))
host = read(managed, MIB) == b"\\x09" * 10 + bytes(20) + b"\\x09" * 7970 + bytes(300000) + \\
    b"\\x09" * (MIB - 308000)
mixed = alloc(8 * MIB)
for i in range(0, 128, 3):
    fill(mixed + i * 65536 + 100, 5, 70)
check(cuda.cuMemsetD8(mixed + 150, 0, 7 * MIB))
after = read(mixed, 8 * MIB)
say(stale=old.count(7), edges=edges, host=host, unbacked=backed() == 43 * 65536,
    mixed=[after[:150].count(5), after[150:7 * MIB + 150].count(5), after[7 * MIB + 150:].count(5)])
"""
    assert said_in(machine, PROGRAM + code) == {
        "stale": MIB,
        "edges": True,
        "host": True,
        "unbacked": True,
        "mixed": [50, 0, 5 * 70],
    }


def test_beyond_the_cap_a_write_is_refused_and_says_why_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    machine = capped(monkeypatch, tmp_path / "machine", "8MiB")
    code = """
address = alloc(GIB)
first = fill(address, 7, 6 * MIB)
refused = [fill(address + 6 * MIB - 9, 8, 3 * MIB), fill(address + 512 * MIB, 8, 8 * MIB)]
data = b"x" * (3 * MIB)
copied = int(cuda.cuMemcpyHtoD(address + 6 * MIB - 9, data, len(data))[0])
unchanged = read(address + 6 * MIB - 9, 9) == b"\\7" * 9
check(cuda.cuCtxSetCurrent(check(cuda.cuDevicePrimaryCtxRetain(1))))
elsewhere = alloc(GIB)
other = [fill(elsewhere, 7, 3 * MIB), fill(elsewhere, 7, 2 * MIB)]
counted = [books.backed_bytes for books in machine.books()]
check(cuda.cuCtxSetCurrent(check(cuda.cuDevicePrimaryCtxRetain(0))))
check(cuda.cuMemFree(address))
say(first=first, refused=refused, copied=copied, unchanged=unchanged, other=other, counted=counted,
    after=fill(alloc(GIB), 7, 6 * MIB))
"""
    program = start(machine, PROGRAM + code)
    out, err = program.communicate(timeout=PATIENCE_S)

    assert json.loads(out) == {
        "first": 0,
        "refused": [2, 2],
        "copied": 2,
        "unchanged": True,
        "other": [2, 0],
        "counted": [6 * MIB, 2 * MIB],
        "after": 0,
    }, err
    (line,) = err.splitlines()
    assert line.startswith("simulated libcuda: ")
    assert str(8 * MIB) in line
    assert "VGPU_SIM_HOST_MEMORY" in line


def test_a_graph_leaves_bytes_alone_that_find_no_host_memory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    machine = capped(monkeypatch, tmp_path / "machine", "1MiB")
    code = """
address, stream = alloc(4 * MIB), check(cuda.cuStreamCreate(0))
check(cuda.cuStreamBeginCapture(stream, cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL))
check(cuda.cuMemsetD8Async(address, 7, MIB // 2, stream))
check(cuda.cuMemsetD8Async(address + MIB, 7, MIB, stream))
graph = check(cuda.cuGraphInstantiate(check(cuda.cuStreamEndCapture(stream)), 0))
before = backed()
cuda.cuGraphLaunch(graph, stream)
check(cuda.cuStreamSynchronize(stream))
after = read(address, 4 * MIB)
say(before=before, backed=backed(), written=after[:MIB].count(7), left=after[MIB:].count(0))
"""
    program = start(machine, PROGRAM + code)
    out, err = program.communicate(timeout=PATIENCE_S)

    assert json.loads(out) == {
        "before": 0,
        "backed": MIB // 2,
        "written": MIB // 2,
        "left": 3 * MIB,
    }, err
    assert err.count("simulated libcuda: ") == 1


def test_the_cap_must_be_a_size(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="VGPU_SIM_HOST_MEMORY 'much' is not a size"):
        capped(monkeypatch, tmp_path / "machine", "much")

    assert not (tmp_path / "machine").exists()
