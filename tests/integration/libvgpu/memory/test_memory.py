"""Memory under a slice, seen by unmodified clients on the simulated GPU."""

import os
import signal

import pytest

from libvgpu.limits import ContainerLimits, DeviceLimit, Family
from libvgpu.region import create
from libvgpu.sim import Machine
from support.lines import expect, next_line, tell
from support.shim.slices import Slice, SliceOf
from support.waiting import PATIENCE_S, wait_until

GIB = 1 << 30
PIECE = 64 << 20

FILL = f"""
from support.shim.cuda_client import *
open_context()
free, total = check(driver.cuMemGetInfo())
pieces, code = allocate_until_refused({PIECE})
check(driver.cuMemFree(pieces.pop()))
again = int(driver.cuMemAlloc({PIECE})[0])
print(free, total, len(pieces) + 1, code, again)
"""
HOLD = """
import sys
from support.shim.cuda_client import *
open_context()
address = check(driver.cuMemAlloc(int(sys.argv[1])))
print("held", flush=True)
sys.stdin.readline()
check(driver.cuMemFree(address))
print("freed", flush=True)
sys.stdin.readline()
"""


def wait_for_used(part: Slice, used_bytes: int) -> None:
    def is_used() -> bool:
        alive = [each for each in part.usage().processes if each.alive]
        return sum(each.devices[0].used_bytes for each in alive) == used_bytes

    wait_until(is_used, f"{used_bytes} bytes are used")


def test_a_limit_that_divides_evenly_is_usable_to_the_last_byte(part: Slice) -> None:
    free, total, granted, code, again = map(int, part.run(FILL))

    assert (free, total) == (GIB, GIB)
    assert (granted, code, again) == (16, 2, 0)


def test_a_context_is_charged_and_what_it_leaves_is_granted(
    costly_machine: Machine, slice_of: SliceOf
) -> None:
    part = slice_of(costly_machine, memory_bytes=GIB)
    context_bytes = costly_machine.devices[0].profile.context_bytes

    free, total, granted, code, again = map(int, part.run(FILL))

    assert (free, total) == (GIB - context_bytes, GIB)
    assert (granted, code, again) == (free // PIECE, 2, 0)


def test_a_context_without_an_estimate_is_measured(
    costly_machine: Machine, slice_of: SliceOf
) -> None:
    part = slice_of(costly_machine, memory_bytes=GIB)
    part.change(context_bytes=0)

    free, *_ = map(int, part.run(FILL))

    assert free == GIB - costly_machine.devices[0].profile.context_bytes


def test_processes_of_one_container_share_one_limit(part: Slice) -> None:
    holder = part.start(HOLD, str(GIB // 2))
    expect(holder, "held")

    free, _, granted, code, _ = map(int, part.run(FILL))

    assert (free, granted, code) == (GIB // 2, 8, 2)


def test_processes_that_race_never_get_more_than_the_limit(machine: Machine, part: Slice) -> None:
    race = f"""
import sys
from support.shim.cuda_client import *
open_context()
print("ready", flush=True); sys.stdin.readline()
print(len(allocate_until_refused({PIECE})[0]), flush=True); sys.stdin.readline()
"""
    processes = [part.start(race) for _ in range(6)]
    for process in processes:
        expect(process, "ready")
    for process in processes:
        tell(process, "go")

    granted = [int(next_line(p)) for p in processes]

    assert sum(granted) == 16
    assert machine.books()[0].memory_used_bytes == GIB


def test_a_killed_process_gives_its_bytes_back(part: Slice) -> None:
    holder = part.start(HOLD, str(GIB))
    expect(holder, "held")
    wait_for_used(part, GIB)

    holder.send_signal(signal.SIGKILL)
    holder.wait()

    wait_for_used(part, 0)
    _, _, granted, code, _ = map(int, part.run(FILL))
    assert (granted, code) == (16, 2)


def test_a_stopped_process_stalls_nobody(part: Slice) -> None:
    holder = part.start(HOLD, str(GIB // 4))
    expect(holder, "held")
    holder.send_signal(signal.SIGSTOP)

    free, _, granted, _, _ = map(int, part.run(FILL))

    assert (free, granted) == (GIB * 3 // 4, 12)


def test_a_lowered_limit_holds_in_a_running_process(part: Slice) -> None:
    watch = """
import sys
from support.shim.cuda_client import *
open_context()
check(driver.cuMemAlloc(256 << 20))
for line in sys.stdin:
    print(check(driver.cuMemGetInfo())[1], int(driver.cuMemAlloc(int(line))[0]), flush=True)
"""
    process = part.start(watch)

    def ask(count: int) -> list[int]:
        tell(process, str(count))
        return [int(word) for word in next_line(process).split()]

    assert ask(1 << 20) == [GIB, 0]
    part.change(memory_limit_bytes=GIB // 2)
    assert ask(256 << 20) == [GIB // 2, 2]
    part.change(memory_limit_bytes=GIB)
    assert ask(256 << 20) == [GIB, 0]


def test_refusals_are_told_to_the_host(part: Slice) -> None:
    refuse = """
import sys
from support.shim.cuda_client import *
open_context()
print(int(driver.cuMemAlloc(2 << 30)[0]), flush=True); sys.stdin.readline()
"""
    process = part.start(refuse)
    expect(process, "2")

    (seen,) = part.usage().processes

    assert seen.alive and seen.pid == process.pid
    assert seen.devices[0].refused_count == 1
    refusal = seen.devices[0].last_refusal
    assert refusal is not None
    assert (refusal.asked_bytes, refusal.used_bytes, refusal.limit_bytes) == (2 * GIB, 0, GIB)


def test_stream_ordered_and_pitched_and_managed_memory_is_charged(part: Slice) -> None:
    kinds = """
from support.shim.cuda_client import *
open_context()
stream = check(driver.cuStreamCreate(0))
def free(): return check(driver.cuMemGetInfo())[0]
before = free()
a = check(driver.cuMemAllocAsync(1 << 20, stream)); print(before - free())
check(driver.cuMemFreeAsync(a, stream)); check(driver.cuStreamSynchronize(stream))
print(before - free())
b = check(driver.cuMemAllocManaged(2 << 20, driver.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL.value))
print(before - free()); check(driver.cuMemFree(b))
c, pitch = check(driver.cuMemAllocPitch(1000, 1000, 4)); print(before - free() - pitch * 1000)
check(driver.cuMemFree(c)); print(before - free())
print(int(driver.cuMemAllocAsync(2 << 30, stream)[0]), int(driver.cuMemAllocManaged(2 << 30, 1)[0]))
"""

    seen = [int(word) for word in part.run(kinds)]

    assert seen == [1 << 20, 0, 2 << 20, 0, 0, 2, 2]


def test_an_unknown_pointer_is_the_drivers_business(part: Slice) -> None:
    code = """
from support.shim.cuda_client import *
open_context()
a = check(driver.cuMemAlloc(1 << 20)); check(driver.cuMemFree(a))
print(int(driver.cuMemFree(a)[0]), int(driver.cuMemFree(12345)[0]), int(driver.cuMemFree(0)[0]))
print(check(driver.cuMemGetInfo())[0])
"""

    with_shim, without = part.run(code), part.run(code, shim=False)

    assert with_shim[:3] == without[:3]
    assert int(with_shim[3]) == GIB


def test_a_gpu_that_the_slice_does_not_name_gives_nothing(part: Slice) -> None:
    stranger = part.directory.parent / "stranger"
    uuid = "GPU-00000000-0000-0000-0000-000000000000"
    create(stranger, ContainerLimits("other", Family.VGPU, (DeviceLimit(uuid, GIB),)))
    part.directory = stranger
    code = """
from support.shim.cuda_client import *
check(driver.cuInit(0))
print(check(driver.cuDeviceTotalMem(0)))
print(int(driver.cuDevicePrimaryCtxRetain(0)[0]))
"""

    assert part.run(code) == [str(2 << 20), "2"]  # monitors divide by a total


@pytest.mark.parametrize("damage", ["missing", "truncated", "garbage"])
def test_a_slice_that_cannot_be_read_refuses_everything(damage: str, part: Slice) -> None:
    path = part.directory / "limits"
    path.chmod(0o644)
    if damage == "missing":
        path.unlink()
    elif damage == "truncated":
        os.truncate(path, 100)
    else:
        path.write_bytes(os.urandom(path.stat().st_size))
    code = "from support.shim.cuda_client import *; print(int(driver.cuInit(0)[0]))"

    process = part.start(code)
    stdout, stderr = process.communicate(timeout=PATIENCE_S)

    assert stdout == "100\n"  # CUDA_ERROR_NO_DEVICE
    assert stderr.startswith("libvgpu: the slice in ")
    assert stderr.count("\n") == 1


def test_a_primary_context_that_ends_returns_everything_in_it(
    costly_machine: Machine, slice_of: SliceOf
) -> None:
    part = slice_of(costly_machine, memory_bytes=GIB)
    code = """
import sys
from support.shim.cuda_client import *
for _ in range(3):
    open_context(); check(driver.cuMemAlloc(100 << 20))
    check(driver.cuDevicePrimaryCtxRelease(0))
for _ in range(3):
    open_context(); check(driver.cuMemAlloc(100 << 20)); check(driver.cuDevicePrimaryCtxReset(0))
print("ended", flush=True); sys.stdin.readline()
"""
    process = part.start(code)
    expect(process, "ended")

    wait_for_used(part, 0)
    assert part.usage().devices[0].used_bytes == 0
    assert costly_machine.books()[0].memory_used_bytes == 0


def test_a_child_that_lives_on_keeps_nothing_of_its_dead_parent(part: Slice) -> None:
    code = """
import os, sys, time
from support.shim.cuda_client import *
open_context()
check(driver.cuMemAlloc(512 << 20))
child = os.fork()
if child == 0:
    os.closerange(3, 64)  # a child that closes all it inherited
    time.sleep(30); os._exit(0)
os.closerange(3, 64)
print(child, flush=True); time.sleep(30)
"""
    process = part.start(code)
    child = int(next_line(process))
    wait_for_used(part, 512 << 20)

    process.kill()
    process.wait()

    wait_for_used(part, 0)
    os.kill(child, signal.SIGKILL)
