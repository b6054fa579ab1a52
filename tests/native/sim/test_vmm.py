"""Memory in separate physical and virtual parts, on the simulated GPU."""

import json
from pathlib import Path

from libvgpu.sim import PROFILES, Machine
from support.lines import expect, next_line
from support.sim.programs import run, said_in, start
from support.sim.sharing import GRANULE, VMM
from support.waiting import PATIENCE_S


def test_bytes_are_charged_until_neither_handle_nor_mapping_is_left(machine: Machine) -> None:
    code = """
open_context()
steps = [used()]
def step(result): steps.append(used()); return result
handle = step(create(3))
one, other = step(reserve(3)), reserve(3)
step([map_at(one, handle, 3), map_at(other, handle, 3)])
step(unmap(one, 3))
step(check(cuda.cuMemRelease(handle)))
step(unmap(other, 3))
again = create(2)
step(check(cuda.cuMemRelease(again)))
same(steps, [0, 3, 3, 3, 3, 3, 0, 0])
same(int(cuda.cuMemRelease(handle)[0]), 1)
same([int(cuda.cuMemAddressFree(each, 3 * GRANULE)[0]) for each in (one, other)], [0, 0])
"""
    run(machine, VMM + code)


def test_a_handle_mapped_twice_shows_the_same_bytes(machine: Machine) -> None:
    code = """
open_context()
handle, one, other = create(), reserve(), reserve()
for place in (one, other):
    assert map_at(place, handle) == 0 and grant(place) == 0
assert write(one + 100, b"seen twice") == 0
first = read(other + 100, 10).decode()
unmap(one); unmap(other)
map_at(other, handle); grant(other)
say(first=first, kept=read(other + 100, 10).decode())
"""
    assert said_in(machine, VMM + code) == {"first": "seen twice", "kept": "seen twice"}


def test_a_copy_may_run_over_mappings_side_by_side(machine: Machine) -> None:
    code = """
open_context()
place = reserve(4)
for i in range(3):
    map_at(place + i * GRANULE, create())
grant(place, 3)
data = os.urandom(3 * GRANULE)
same(write(place, data), 0)
same(read(place, len(data)) == data, True)
same(write(place + 1, data), 1)
same(int(check(cuda.cuMemGetAddressRange(place + GRANULE + 7))[0]) - place, GRANULE)
same(unmap(place, 4), 1)
same(unmap(place, 3), 0)
same(used(), 3)
"""
    run(machine, VMM + code)


def test_what_is_not_mapped_or_not_granted_is_refused(machine: Machine) -> None:
    code = """
open_context()
handle, place = create(2), reserve(2)
flags = lambda: int(check(cuda.cuMemGetAccess(properties().location, place)))
answers = dict(reserved=write(place, b"x"))
answers["unmapped"] = grant(place, 2)
answers["half"] = [map_at(place, handle, 1), map_at(place, handle, 2), unmap(place, 1)]
map_at(place, handle, 2)
answers["mapped"] = write(place, b"x")
answers["flags"] = [flags(), grant(place, 2) or flags()]
answers["granted"] = write(place, b"x")
answers["part"] = grant(place, 1)
answers["taken"] = [grant(place, 2, NONE), write(place, b"x"), flags()]
answers["free"] = [int(cuda.cuMemFree(place)[0]),
                   int(cuda.cuMemAddressFree(place, 2 * GRANULE)[0])]
unmap(place, 2)
answers["wrong size"] = int(cuda.cuMemAddressFree(place, GRANULE)[0])
say(**answers)
"""
    assert said_in(machine, VMM + code) == {
        "reserved": 1,
        "unmapped": 1,
        "half": [0, 1, 0],
        "mapped": 1,
        "flags": [0, 3],
        "granted": 0,
        "part": 1,
        "taken": [0, 1, 0],
        "free": [1, 1],
        "wrong size": 1,
    }


def test_wrong_sizes_and_handles_are_refused(machine: Machine) -> None:
    code = """
open_context()
size = check(cuda.cuMemGetAllocationGranularity(properties(),
    cuda.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM))
absent = properties()
absent.location.id = 7
fabric = properties()
fabric.requestedHandleTypes = cuda.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_FABRIC
handle, place = create(), reserve(2)
same(int(size), GRANULE)
same(code(cuda.cuMemCreate(GRANULE + 4096, properties(), 0)), 1)
same(code(cuda.cuMemCreate(0, properties(), 0)), 1)
same(code(cuda.cuMemCreate(GRANULE, absent, 0)), 101)
same(code(cuda.cuMemCreate(GRANULE, fabric, 0)), 801)
same(code(cuda.cuMemCreate(1 << 40, properties(), 0)), 2)
same(map_at(place, 999), 1)
same(map_at(place, handle, 2), 1)
same(map_at(place - GRANULE, handle), 1)
same(code(cuda.cuMemRelease(12345)), 1)
same(used(), 1)
"""
    run(machine, VMM + code)


def test_a_handle_is_found_by_address_and_tells_its_properties(machine: Machine) -> None:
    code = """
open_context()
handle, place = create(exported=True), reserve()
map_at(place, handle)
again = check(cuda.cuMemRetainAllocationHandle(place + 12345))
told = check(cuda.cuMemGetAllocationPropertiesFromHandle(again))
check(cuda.cuMemRelease(handle)); unmap(place)
same(used(), 1)
cuda.cuMemRelease(again)
same(int(again) == int(handle), True)
same(int(told.requestedHandleTypes), 1)
same(used(), 0)
same(int(cuda.cuMemRetainAllocationHandle(place)[0]), 1)
"""
    run(machine, VMM + code)


def test_pointers_into_a_reservation_tell_what_they_are(machine: Machine) -> None:
    code = """
open_context()
place = reserve(3)
map_at(place + GRANULE, create(exported=True))
grant(place + GRANULE)
names = cuda.CUpointer_attribute
def ask(name, address):
    answer = cuda.cuPointerGetAttribute(getattr(names, "CU_POINTER_ATTRIBUTE_" + name), address)
    return int(answer[1]) if int(answer[0]) == 0 else -int(answer[0])
inside = place + GRANULE + 5
same(ask("RANGE_START_ADDR", inside) - place, 0)
same(ask("RANGE_SIZE", inside) // GRANULE, 3)
same([ask("MAPPED", place), ask("MAPPED", inside)], [0, 1])
same([ask("MAPPING_BASE_ADDR", inside) - place, ask("MAPPING_SIZE", inside)], [GRANULE, GRANULE])
same([ask("DEVICE_ORDINAL", place), ask("DEVICE_ORDINAL", inside)], [-1, 0])
same(ask("ALLOWED_HANDLE_TYPES", inside), 1)
same(ask("IS_LEGACY_CUDA_IPC_CAPABLE", inside), 0)
same(ask("ACCESS_FLAGS", inside), 3)
"""
    run(machine, VMM + code)


def test_host_memory_is_not_charged(machine: Machine) -> None:
    code = """
open_context()
handle, place = create(host=True), reserve()
map_at(place, handle)
grant(place)
write(place, b"host")
say(data=read(place, 4).decode(), used=used())
"""
    assert said_in(machine, VMM + code) == {"data": "host", "used": 0}


def test_memory_of_handles_outlives_the_context(machine: Machine) -> None:
    code = """
open_context()
handle, place = create(), reserve()
map_at(place, handle); grant(place); write(place, b"kept")
check(cuda.cuDevicePrimaryCtxReset(0))
open_context()
say(data=read(place, 4).decode(), used=used())
"""
    assert said_in(machine, VMM + code) == {"data": "kept", "used": 1}


def test_handles_need_no_context_and_are_still_counted(machine: Machine) -> None:
    code = """
check(cuda.cuInit(0))
handle = create(5)
open_context()
taken = used()
cuda.cuMemRelease(handle)
say(taken=taken, left=used())
"""
    assert said_in(machine, VMM + code) == {"taken": 5, "left": 0}


def test_thousands_of_handles_need_no_descriptors_and_no_memory(machine: Machine) -> None:
    code = """
import resource
open_context()
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
place = reserve(2000)
for i in range(2000):
    assert map_at(place + i * GRANULE, create()) == 0
assert grant(place, 2000) == 0
write(place + 1999 * GRANULE, b"last")
say(used=used(), last=read(place + 1999 * GRANULE, 4).decode(),
    peak_mib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10)
"""
    said = said_in(machine, VMM + code)

    assert said["used"] == 2000
    assert said["last"] == "last"
    assert isinstance(said["peak_mib"], int)
    assert said["peak_mib"] < 2000  # of 4000 MiB that were mapped


def test_freed_bytes_leave_the_host(machine: Machine) -> None:
    code = """
open_context()
def shared_kib():
    return int(next(line for line in open("/proc/self/status") if line.startswith("RssShmem"))
               .split()[1])
def fill():
    before = shared_kib()
    handle, place = create(32), reserve(32)
    map_at(place, handle, 32); grant(place, 32)
    check(cuda.cuMemsetD8(place, 1, 32 * GRANULE))
    full = shared_kib() - before
    cuda.cuMemRelease(handle); unmap(place, 32)
    return full, shared_kib() - before
fill()  # the machine's own pages are touched by then
full, left = fill()
say(full=full, left=left)
"""
    said = said_in(machine, VMM + code)

    assert said["full"] == 64 << 10
    assert said["left"] == 0


def test_a_program_may_close_every_descriptor(machine: Machine) -> None:
    code = """
open_context()
plain, exported, place = create(), create(exported=True), reserve(2)
os.closerange(3, 64)
others = [os.open("/dev/null", os.O_RDWR) for _ in range(60)]  # under numbers that were ours
map_at(place, plain); map_at(place + GRANULE, exported); grant(place, 2)
write(place, b"one"); write(place + GRANULE, b"two")
shown = read(place, 3) + read(place + GRANULE, 3)
refused = int(cuda.cuMemExportToShareableHandle(exported, POSIX, 0)[0])
unmap(place, 2)
for each in (plain, exported): cuda.cuMemRelease(each)
say(shown=shown.decode(), refused=refused, used=used(),
    others=sum(os.write(other, b"x") for other in others))
"""
    assert said_in(machine, VMM + code) == {
        "shown": "onetwo",
        "refused": 999,
        "others": 60,
        "used": 0,
    }


def test_a_killed_process_gives_its_pieces_back(machine: Machine) -> None:
    program = start(machine, VMM + "open_context(); create(9); print('ready', flush=True); input()")
    expect(program)
    assert machine.books()[0].memory_used_bytes == 9 * GRANULE

    program.kill()
    program.wait(PATIENCE_S)

    assert machine.books()[0].memory_used_bytes == 0


def test_threads_do_not_disturb_each_other(machine: Machine) -> None:
    code = """
import threading
context, wrong = open_context(), []
def work(number):
    check(cuda.cuCtxSetCurrent(context))
    for turn in range(60):
        handle, place = create(2), reserve(4)
        text = f"{number}/{turn}".encode()
        if map_at(place + GRANULE, handle, 2) or grant(place + GRANULE, 2):
            wrong.append("map")
        if write(place + GRANULE, text) or read(place + GRANULE, len(text)) != text:
            wrong.append("data")
        check(cuda.cuMemRelease(handle))
        if unmap(place + GRANULE, 2) or int(cuda.cuMemAddressFree(place, 4 * GRANULE)[0]):
            wrong.append("unmap")
threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
for each in threads: each.start()
for each in threads: each.join()
say(wrong=wrong, used=used())
"""
    assert said_in(machine, VMM + code) == {"wrong": [], "used": 0}


def test_a_piece_counts_on_its_own_device(tmp_path: Path) -> None:
    machine = Machine.create([PROFILES["t4"]] * 2, tmp_path / "machine")
    code = """
open_context()
wanted = properties()
wanted.location.id = 1
handle, place = check(cuda.cuMemCreate(3 * GRANULE, wanted, 0)), reserve(3)
map_at(place, handle, 3)
whose = descriptor()
whose.location.id = 1
say(granted=int(cuda.cuMemSetAccess(place, 3 * GRANULE, [whose], 1)[0]),
    wrote=write(place, b"x"))
input()
"""
    program = start(machine, VMM + code)
    try:
        assert json.loads(next_line(program)) == {"granted": 0, "wrote": 0}
        used = [each.memory_used_bytes for each in machine.books()]
        assert used == [PROFILES["t4"].context_bytes, 3 * GRANULE]
    finally:
        program.kill()
        program.wait(PATIENCE_S)
