"""Memory of the simulated GPU, seen by an unmodified CUDA client."""

import os
import signal
import time

import pytest

from libvgpu.sim import PROFILES, Machine
from support.lines import expect, next_line
from support.sim.programs import finish, run, said_in, start
from support.waiting import PATIENCE_S, wait_until

MIB = 1 << 20
PIECE = 64 * MIB


def test_pieces_fit_as_often_as_free_says_and_one_more_after_a_free(
    costly_machine: Machine,
) -> None:
    code = f"""
open_context()
free, total = check(cuda.cuMemGetInfo())
pieces, refusal = allocate_until_refused({PIECE})
check(cuda.cuMemFree(pieces.pop()))
again, _ = allocate_until_refused({PIECE})
say(free=free, total=total, granted=len(pieces) + 1, refusal=refusal, again=len(again))
"""
    said = said_in(costly_machine, code)
    profile = PROFILES["h100-80g"]

    assert said["total"] == profile.memory_bytes
    assert said["free"] == profile.memory_bytes - profile.context_bytes
    assert said["granted"] == said["free"] // PIECE
    assert said["refusal"] == 2
    assert said["again"] == 1


def test_every_context_costs_its_bytes_and_gives_them_back(costly_machine: Machine) -> None:
    code = """
primary = open_context()
one = check(cuda.cuMemGetInfo())[0]
created = check(cuda.cuCtxCreate(None, 0, 0))
two = check(cuda.cuMemGetInfo())[0]
check(cuda.cuMemAlloc(1 << 20))
check(cuda.cuCtxDestroy(created))
check(cuda.cuCtxSetCurrent(primary))
say(cost=one - two, left=check(cuda.cuMemGetInfo())[0] - one)
"""
    assert said_in(costly_machine, code) == {
        "cost": PROFILES["h100-80g"].context_bytes,
        "left": 0,
    }


def test_memory_is_freed_by_its_address_under_any_context_or_none(machine: Machine) -> None:
    code = """
context = open_context()
before = check(cuda.cuMemGetInfo())[0]
pieces = [check(cuda.cuMemAlloc(1 << 20)) for _ in range(3)]
pinned = check(cuda.cuMemHostAlloc(4096, 0))
other = check(cuda.cuCtxCreate(None, 0, 0))
codes = [int(cuda.cuMemFree(pieces.pop())[0])]
check(cuda.cuCtxDestroy(other))
check(cuda.cuCtxSetCurrent(None))
codes += [int(cuda.cuMemFree(piece)[0]) for piece in pieces]
codes += [int(cuda.cuMemFreeHost(one)[0]) for one in (pinned, pinned, 0)]
codes += [int(cuda.cuMemFree(pieces[0])[0])]
check(cuda.cuCtxSetCurrent(context))
say(codes=codes, left=before - check(cuda.cuMemGetInfo())[0])
"""
    freed = [0, 0, 0, 0]
    assert said_in(machine, code) == {"codes": [*freed, 1, 0, 1], "left": 0}


def test_data_comes_back_as_it_went(machine: Machine) -> None:
    code = """
open_context()
data = os.urandom(1_000_003)
one, other = check(cuda.cuMemAlloc(len(data))), check(cuda.cuMemAlloc(len(data)))
check(cuda.cuMemcpyHtoD(one, data, len(data)))
check(cuda.cuMemcpyDtoD(other, one, len(data)))
check(cuda.cuMemsetD8(int(other) + 5, 7, 3))
back = bytearray(len(data))
check(cuda.cuMemcpyDtoH(back, other, len(data)))
say(same=bytes(back) == data[:5] + b"\\7\\7\\7" + data[8:])
"""
    assert said_in(machine, code) == {"same": True}


def test_addresses_that_are_not_the_devices_are_refused(machine: Machine) -> None:
    code = """
open_context()
address = check(cuda.cuMemAlloc(4096))
data = bytes(8192)
same(int(cuda.cuMemcpyHtoD(address, data, 8192)[0]), 1)
same(int(cuda.cuMemFree(int(address) + 512)[0]), 1)
same(int(cuda.cuMemFree(12345)[0]), 1)
same([int(cuda.cuMemFree(address)[0]), int(cuda.cuMemFree(address)[0])], [0, 1])
same(int(cuda.cuMemAlloc(0)[0]), 1)
"""
    run(machine, code)


def test_a_pool_keeps_what_is_freed_until_a_synchronisation(machine: Machine) -> None:
    code = """
open_context()
stream = check(cuda.cuStreamCreate(0))
def free(): return check(cuda.cuMemGetInfo())[0]
before = free()
address = check(cuda.cuMemAllocAsync(64 << 20, stream))
used = before - free()
check(cuda.cuMemFreeAsync(address, stream))
kept = before - free()
check(cuda.cuStreamSynchronize(stream))
say(used=used, kept=kept, after=before - free())
"""
    assert said_in(machine, code) == {"used": 64 * MIB, "kept": 64 * MIB, "after": 0}


def test_what_a_pool_keeps_does_not_stand_in_the_way(machine: Machine) -> None:
    code = """
open_context()
free, total = check(cuda.cuMemGetInfo())
address = check(cuda.cuMemAllocAsync(free, 0))
check(cuda.cuMemFreeAsync(address, 0))
say(code=int(cuda.cuMemAlloc(free)[0]))
"""
    assert said_in(machine, code) == {"code": 0}


def test_processes_share_one_device_and_nvml_shows_each(machine: Machine) -> None:
    holder = """
open_context()
check(cuda.cuMemAlloc(int(sys.argv[0] and 3 << 30)))
print(os.getpid(), flush=True)
sys.stdin.read()
"""
    viewer = """
import pynvml
open_context()
pynvml.nvmlInit()
handle = pynvml.nvmlDeviceGetHandleByIndex(0)
say(used=pynvml.nvmlDeviceGetMemoryInfo(handle).used,
    used_v2=pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2).used,
    free=check(cuda.cuMemGetInfo())[0],
    processes={p.pid: p.usedGpuMemory for p in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)},
    uuid=pynvml.nvmlDeviceGetUUID(handle))
"""
    holders = [start(machine, holder) for _ in range(2)]
    pids = [int(next_line(each)) for each in holders]
    try:
        said = said_in(machine, viewer)
    finally:
        for each in holders:
            finish(each)

    assert said["used"] == said["used_v2"] == 6 << 30
    assert said["free"] == PROFILES["h100-80g"].memory_bytes - (6 << 30)
    assert said["processes"] == {str(pid): 3 << 30 for pid in pids}
    assert said["uuid"] == machine.devices[0].uuid


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_process_gives_its_memory_and_queue_back(machine: Machine, number: int) -> None:
    code = """
open_context()
check(cuda.cuMemAlloc(5 << 30))
spinner = Spinner(1_000_000_000)
for _ in range(100):
    spinner.launch()
print("ready", flush=True)
sys.stdin.read()
"""
    program = start(machine, code)
    expect(program)
    assert machine.books()[0].memory_used_bytes == 5 << 30

    program.send_signal(number)
    program.wait(PATIENCE_S)

    (books,) = machine.books()
    assert books.memory_used_bytes == 0
    assert [client.alive for client in books.clients] == [False]
    busy_ns = books.busy_ns
    time.sleep(0.05)
    assert machine.books()[0].busy_ns == busy_ns


def test_a_child_keeps_its_dead_parents_memory_until_it_ends(machine: Machine) -> None:
    code = """
open_context()
check(cuda.cuMemAlloc(5 << 30))
child = os.fork()
if child == 0:
    time.sleep(60)
    os._exit(0)
print(child, flush=True)
sys.stdin.read()
"""
    program = start(machine, code)
    child = int(next_line(program))
    try:
        assert machine.books()[0].memory_used_bytes == 5 << 30
        program.kill()
        program.wait(PATIENCE_S)

        (kept,) = (client for client in machine.books()[0].clients if client.alive)
        assert (kept.pid, kept.memory_bytes) == (program.pid, 5 << 30)
    finally:
        os.kill(child, signal.SIGKILL)
    wait_until(lambda: machine.books()[0].memory_used_bytes == 0, "the child has ended")


def test_a_stopped_process_holds_up_nobody(machine: Machine) -> None:
    code = """
open_context()
spinner = Spinner(1_000)
print("ready", flush=True)
while True:
    spinner.launch(); spinner.wait(); check(cuda.cuMemFree(check(cuda.cuMemAlloc(4096))))
"""
    for _ in range(5):  # wherever it happens to be
        program = start(machine, code)
        next_line(program)
        time.sleep(0.02)
        program.send_signal(signal.SIGSTOP)
        try:
            started = time.monotonic()
            assert said_in(machine, "open_context(); say(ok=1)") == {"ok": 1}
            assert time.monotonic() - started < PATIENCE_S
        finally:
            program.kill()
            program.wait(PATIENCE_S)


def test_a_forked_child_must_not_go_on_but_nvml_may(machine: Machine) -> None:
    code = """
import pynvml
open_context()
pynvml.nvmlInit()
handle = pynvml.nvmlDeviceGetHandleByIndex(0)
child = os.fork()
if child == 0:
    say(cuda=int(cuda.cuMemAlloc(4096)[0]), name=pynvml.nvmlDeviceGetName(handle))
    os._exit(0)
os.waitpid(child, 0)
check(cuda.cuMemAlloc(4096))
"""
    assert said_in(machine, code) == {"cuda": 3, "name": "NVIDIA H100 80GB HBM3"}


def test_visible_devices(tmp_path_factory: pytest.TempPathFactory) -> None:
    machine = Machine.create([PROFILES["t4"]] * 3, tmp_path_factory.mktemp("machine") / "m")
    uuids = [device.uuid for device in machine.devices]
    code = """
import pynvml
pynvml.nvmlInit()
started = int(cuda.cuInit(0)[0])
count = check(cuda.cuDeviceGetCount()) if started == 0 else 0
def uuid(i): return bytes(check(cuda.cuDeviceGetUuid(i)).bytes).hex()
say(cuda=[uuid(i) for i in range(count)], nvml=pynvml.nvmlDeviceGetCount(), started=started)
"""

    def seen(**env: str) -> dict[str, object]:
        said: dict[str, object] = said_in(machine, code, env)
        return said

    digits = [uuid.removeprefix("GPU-").replace("-", "") for uuid in uuids]
    assert seen()["cuda"] == digits
    assert seen(CUDA_VISIBLE_DEVICES="2,0") == {
        "cuda": [digits[2], digits[0]],
        "nvml": 3,
        "started": 0,
    }
    assert seen(VGPU_SIM_VISIBLE=uuids[1]) == {"cuda": [digits[1]], "nvml": 1, "started": 0}
    assert seen(VGPU_SIM_VISIBLE=f"{uuids[0]},{uuids[2]}", CUDA_VISIBLE_DEVICES="1")["cuda"] == [
        digits[2]
    ]
    assert seen(CUDA_VISIBLE_DEVICES="") == {"cuda": [], "nvml": 3, "started": 100}


def test_a_program_that_closes_all_descriptors_does_not_take_its_neighbours_for_dead(
    costly_machine: Machine,
) -> None:
    neighbour = start(
        costly_machine,
        'open_context(); check(cuda.cuMemAlloc(1 << 30)); print("ready", flush=True); input()',
    )
    expect(neighbour)
    code = """
open_context()
before = check(cuda.cuMemGetInfo())[0]
os.closerange(3, 256)
others = [open("/etc/passwd", "r+b" if os.getuid() == 0 else "rb") for _ in range(64)]
time.sleep(0.02)  # the dead are looked for every 10 ms
address = check(cuda.cuMemAlloc(1 << 20))
after = check(cuda.cuMemGetInfo())[0]
check(cuda.cuMemFree(address))
stream = check(cuda.cuStreamCreate(0))
say(neighbour_counted=before - after == 1 << 20, files=len(others))
"""
    before = os.stat("/etc/passwd").st_size
    said = said_in(costly_machine, code)
    finish(neighbour, "\n")

    assert said["neighbour_counted"]
    assert os.stat("/etc/passwd").st_size == before  # nothing of ours was done to the others' files
