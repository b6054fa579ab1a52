"""Memory of one process on the simulated GPU in the hands of another."""

import signal
from pathlib import Path

import pytest

from libvgpu.sim import PROFILES, Machine
from support.sim.programs import run, said_in
from support.sim.sharing import GRANULE, SERVE, Program, ending, hand_over, pair


def used_granules(machine: Machine) -> int:
    return machine.books()[0].memory_used_bytes // GRANULE


# ---- cuIpc* ----------------------------------------------------------------------------------


def test_both_processes_see_the_same_bytes_and_they_count_once(machine: Machine) -> None:
    with pair(machine) as (exporter, importer):
        exporter.ask(f"put('p', int(check(cuda.cuMemAlloc({3 * GRANULE}))))")
        exporter.ask("write(p + 5000, b'before')")
        handle = exporter.ask("ipc_handle(p)")

        assert importer.ask(f"put('q', ipc_open('{handle}'))") == 0
        assert importer.ask("text(q + 5000, 6)") == "before"
        assert importer.ask("write(q + 7, b'back')") == 0
        assert exporter.ask("text(p + 7, 4)") == "back"
        assert exporter.ask("write(p + 9000, b'later')") == 0
        assert importer.ask("text(q + 9000, 5)") == "later"
        assert exporter.ask("own()") == importer.ask("own()") == 3 * GRANULE

        importer.ask("int(cuda.cuIpcCloseMemHandle(q)[0])")
        assert used_granules(machine) == 3
        assert exporter.ask("int(cuda.cuMemFree(p)[0])") == 0
        assert used_granules(machine) == 0


def test_bytes_live_on_when_their_exporter_is_killed(machine: Machine) -> None:
    with pair(machine) as (exporter, importer):
        exporter.ask(f"put('p', int(check(cuda.cuMemAlloc({4 * GRANULE}))))")
        exporter.ask("write(p, b'survives')")
        handle = exporter.ask("ipc_handle(p)")
        importer.ask(f"put('q', ipc_open('{handle}'))")

        exporter.kill()

        assert used_granules(machine) == 4
        assert importer.ask("text(q, 8)") == "survives"
        assert importer.ask("int(cuda.cuIpcCloseMemHandle(q)[0])") == 0
        assert used_granules(machine) == 0


def test_bytes_live_on_when_their_exporter_frees_them(machine: Machine) -> None:
    with pair(machine) as (exporter, importer):
        exporter.ask(f"put('p', int(check(cuda.cuMemAlloc({GRANULE}))))")
        exporter.ask("write(p, b'kept')")
        handle = exporter.ask("ipc_handle(p)")
        importer.ask(f"put('q', ipc_open('{handle}'))")

        exporter.ask("int(cuda.cuMemFree(p)[0])")

        assert used_granules(machine) == 1
        assert importer.ask("text(q, 4)") == "kept"
        importer.ask("check(cuda.cuDevicePrimaryCtxReset(0))")
        assert used_granules(machine) == 0


def test_a_killed_importer_takes_nothing_along(machine: Machine) -> None:
    with pair(machine) as (exporter, importer):
        exporter.ask(f"put('p', int(check(cuda.cuMemAlloc({GRANULE}))))")
        importer.ask(f"put('q', ipc_open('{exporter.ask('ipc_handle(p)')}'))")

        importer.kill()

        assert used_granules(machine) == 1
        assert exporter.ask("int(cuda.cuMemFree(p)[0])") == 0
        assert used_granules(machine) == 0


def test_opening_twice_counts_and_gives_the_same_address(machine: Machine) -> None:
    with pair(machine) as (exporter, importer):
        exporter.ask("put('p', int(check(cuda.cuMemAlloc(4096))))")
        handle = exporter.ask("ipc_handle(p)")
        assert exporter.ask("ipc_handle(p + 17)") == handle
        close = "int(cuda.cuIpcCloseMemHandle(q)[0])"

        importer.ask(f"put('q', ipc_open('{handle}'))")

        assert importer.ask(f"ipc_open('{handle}') == q") is True
        assert [importer.ask(close) for _ in range(3)] == [0, 0, 1]
        assert importer.ask("int(cuda.cuMemFree(q)[0])") == 1


@pytest.mark.parametrize("end", ["int(cuda.cuMemFree(p)[0])", None])
def test_a_handle_of_what_has_ended_is_refused(machine: Machine, end: str | None) -> None:
    with pair(machine) as (exporter, importer):
        exporter.ask("put('p', int(check(cuda.cuMemAlloc(4096))))")
        handle = exporter.ask("ipc_handle(p)")
        if end:
            exporter.ask(end)
        else:
            exporter.kill()

        assert importer.ask(f"ipc_open('{handle}')") == {"code": 400}


def test_handles_are_refused_where_they_do_not_belong(
    machine: Machine, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = Machine.create([PROFILES["t4"]], tmp_path_factory.mktemp("machine") / "m")
    with pair(machine) as (exporter, _), pair(other) as (stranger, _):
        exporter.ask("put('p', int(check(cuda.cuMemAlloc(4096))))")
        handle = exporter.ask("ipc_handle(p)")
        managed = "cuda.cuMemAllocManaged(4096, 1)"

        assert exporter.ask(f"ipc_open('{handle}')") == {"code": 201}
        assert stranger.ask(f"ipc_open('{handle}')") == {"code": 400}
        assert stranger.ask(f"ipc_open('{'00' * 64}')") == {"code": 400}
        assert exporter.ask(f"ipc_handle(check({managed}))") == {"code": 1}
        assert exporter.ask("ipc_handle(check(cuda.cuMemAllocAsync(4096, 0)))") == {"code": 1}
        assert exporter.ask("ipc_handle(4711)") == {"code": 1}


def test_an_export_keeps_no_more_host_memory_than_was_written(machine: Machine) -> None:
    code = """
address = int(check(cuda.cuMemAlloc(1 << 30)))
write(address + (512 << 20), bytes(range(256)))
ipc_handle(address)
names = {number: os.readlink(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")
         if os.path.exists(f"/proc/self/fd/{number}")}
(file,) = (number for number, name in names.items() if "vgpu-sim-memory" in name)
say(kept=os.stat(f"/proc/self/fd/{file}").st_blocks * 512,
    same=read(address + (512 << 20), 256) == bytes(range(256)))
"""
    assert said_in(machine, SERVE + code) == {"kept": 4096, "same": True}


def test_copies_that_run_during_an_export_are_not_lost(machine: Machine) -> None:
    code = """
import threading
size = 16 << 20
for round in range(8):
    address = int(check(cuda.cuMemAlloc(size)))
    done = threading.Event()
    def fill():
        check(cuda.cuCtxSetCurrent(context))
        for place in range(0, size, 65536):
            check(cuda.cuMemsetD8(address + place, 7, 65536))
        done.set()
    context = check(cuda.cuCtxGetCurrent())
    filler = threading.Thread(target=fill)
    filler.start()
    ipc_handle(address)
    filler.join()
    assert read(address, size).count(7) == size
    check(cuda.cuMemFree(address))
say(used=used())
"""
    assert said_in(machine, SERVE + code) == {"used": 0}


def test_a_stopped_exporter_holds_up_nobody(machine: Machine) -> None:
    with pair(machine) as (exporter, importer):
        exporter.ask("put('p', int(check(cuda.cuMemAlloc(4096))))")
        exporter.ask("write(p, b'stopped')")
        handle = exporter.ask("ipc_handle(p)")
        exporter.process.send_signal(signal.SIGSTOP)
        try:
            importer.ask(f"put('q', ipc_open('{handle}'))")

            assert importer.ask("text(q, 7)") == "stopped"
        finally:
            exporter.process.send_signal(signal.SIGCONT)


# ---- shareable handles -----------------------------------------------------------------------


EXPORT = "put('fd', int(check(cuda.cuMemExportToShareableHandle(h, POSIX, 0))))"
IMPORT = "put('h', check(cuda.cuMemImportFromShareableHandle(given, POSIX)))"
SHOW = "put('p', reserve(2)) or map_at(p, h, 2) or grant(p, 2)"


def test_a_descriptor_carries_a_piece_to_another_process(machine: Machine, tmp_path: Path) -> None:
    with pair(machine) as (exporter, importer):
        exporter.ask("put('h', create(2, exported=True))")
        assert exporter.ask(SHOW) == 0
        exporter.ask("write(p, b'piece')")
        exporter.ask(EXPORT)
        hand_over(exporter, importer, "fd", tmp_path / "line")

        assert importer.ask(IMPORT) == 0
        assert importer.ask(SHOW) == 0
        assert importer.ask("text(p, 5)") == "piece"
        assert used_granules(machine) == 2

        exporter.kill()

        assert used_granules(machine) == 2
        assert importer.ask("text(p, 5)") == "piece"
        assert importer.ask("int(cuda.cuMemRelease(h)[0])") == 0
        assert used_granules(machine) == 2
        assert importer.ask("unmap(p, 2)") == 0
        assert used_granules(machine) == 0


LOCKS = """
import fcntl, struct
def locks(descriptor, operation, kind):
    asked = struct.pack("hh4xqqi4x", kind, os.SEEK_SET, 1 << 40, 1, 0)
    return struct.unpack("hh4xqqi4x", fcntl.fcntl(descriptor, operation, asked))[0]
def lock(descriptor): return locks(descriptor, fcntl.F_OFD_SETLK, fcntl.F_RDLCK)
def is_locked(descriptor):
    return locks(descriptor, fcntl.F_OFD_GETLK, fcntl.F_WRLCK) != fcntl.F_UNLCK
def export(): return check(cuda.cuMemExportToShareableHandle(handle, POSIX, 0))
"""


def test_what_an_export_opened_ends_with_its_descriptors(machine: Machine, tmp_path: Path) -> None:
    with ending(Program(machine, LOCKS), Program(machine)) as (exporter, importer):
        exporter.ask("put('handle', create(exported=True))")
        exporter.ask("put('fd', export())")
        exporter.ask("put('other', export())")
        exporter.ask("lock(fd)")
        assert exporter.ask("is_locked(other)") is True  # another open file of the same memory
        hand_over(exporter, importer, "fd", tmp_path / "line")
        taken = "cuda.cuMemImportFromShareableHandle(given, POSIX)"
        importer.ask(f"put('taken', check({taken}))")

        exporter.ask("os.close(fd)")
        assert exporter.ask("is_locked(other)") is True  # the importer has a copy
        importer.ask("os.close(given)")
        assert exporter.ask("is_locked(other)") is False


def test_a_piece_imported_twice_is_one(machine: Machine, tmp_path: Path) -> None:
    with pair(machine) as (exporter, importer):
        exporter.ask("put('h', create(2, exported=True))")
        exporter.ask(EXPORT)
        hand_over(exporter, importer, "fd", tmp_path / "line")
        release = "int(cuda.cuMemRelease(h)[0])"

        importer.ask(IMPORT)
        importer.ask(IMPORT)
        exporter.ask(release)

        assert importer.ask("int(cuda.cuMemGetAllocationPropertiesFromHandle(h)[1].type)") == 1
        assert importer.ask(release) == 0
        assert used_granules(machine) == 2
        assert importer.ask(release) == 0
        assert used_granules(machine) == 0
        assert importer.ask(IMPORT) == {"code": 1}


def test_only_what_asked_for_it_is_exported(machine: Machine) -> None:
    with pair(machine) as (exporter, _):
        exporter.ask("put('h', create())")
        assert exporter.ask(EXPORT) == {"code": 1}
        exporter.ask("put('given', os.open('/dev/null', os.O_RDWR))")
        assert exporter.ask(IMPORT) == {"code": 1}
        exporter.ask("put('given', 12345)")
        assert exporter.ask(IMPORT) == {"code": 1}
        fabric = "cuda.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_FABRIC"
        assert exporter.ask(EXPORT.replace("POSIX", fabric)) == {"code": 801}


# ---- pools -----------------------------------------------------------------------------------

POOLS = """
pools = cuda.CUmemPoolProps()
pools.allocType = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
pools.handleTypes = POSIX
pools.location = properties().location
"""


def test_a_pool_and_its_allocations_go_to_another_process(machine: Machine, tmp_path: Path) -> None:
    with pair(machine) as (exporter, importer):
        exporter.ask(f"exec({POOLS!r}, globals())")
        exporter.ask("put('pool', check(cuda.cuMemPoolCreate(pools)))")
        exporter.ask(f"put('p', int(check(cuda.cuMemAllocFromPoolAsync({GRANULE}, pool, 0))))")
        exporter.ask("write(p, b'pooled')")
        point = "hexadecimal(check(cuda.cuMemPoolExportPointer(p)))"
        assert exporter.ask(point) == {"code": 1}  # not before its pool
        exporter.ask("put('fd', int(check(cuda.cuMemPoolExportToShareableHandle(pool, POSIX, 0))))")
        hand_over(exporter, importer, "fd", tmp_path / "line")
        importer.ask("put('pool', check(cuda.cuMemPoolImportFromShareableHandle(given, POSIX, 0)))")
        importer.ask("put('data', cuda.CUmemPoolPtrExportData())")
        importer.ask(f"fill(data, '{exporter.ask(point)}')")

        importer.ask("put('q', int(check(cuda.cuMemPoolImportPointer(pool, data))))")

        assert importer.ask("text(q, 6)") == "pooled"
        assert used_granules(machine) == 1
        assert importer.ask("int(cuda.cuMemAllocFromPoolAsync(4096, pool, 0)[0])") == 1
        assert importer.ask("int(cuda.cuDeviceSetMemPool(0, pool)[0])") == 1
        exporter.ask("check(cuda.cuMemFreeAsync(p, 0))")
        assert used_granules(machine) == 1
        assert importer.ask("text(q, 6)") == "pooled"
        assert importer.ask("int(cuda.cuMemPoolDestroy(pool)[0])") == 0
        assert importer.ask("int(cuda.cuMemFreeAsync(q, 0)[0])") == 0
        assert used_granules(machine) == 0


def test_a_machine_has_places_for_so_many_shares(machine: Machine) -> None:
    code = """
pieces = [int(check(cuda.cuMemAlloc(4096))) for _ in range(129)]
for piece in pieces[:128]:
    ipc_handle(piece)
same(int(cuda.cuIpcGetMemHandle(pieces[128])[0]), 2)
assert write(pieces[128], b"still") == 0
check(cuda.cuMemFree(pieces.pop(0)))
same(len(ipc_handle(pieces[-1])), 128)
same(text(pieces[-1], 5), "still")
same([check(cuda.cuMemFree(piece)) for piece in pieces] and own(), 0)
"""
    run(machine, SERVE + code)
