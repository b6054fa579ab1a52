"""Memory that processes of a container share is charged once, as long as any of them holds it."""

import os
import signal

import pytest

from libvgpu.sim import Machine
from support.shim.served import Served
from support.shim.slices import Slice, SliceOf
from support.waiting import wait_until

MIB = 1 << 20
LIMIT = 64 * MIB
PIECE = 40 * MIB

PROGRAM = """
open_context()
stream = check(driver.cuStreamCreate(0))
def allocate(bytes): return int(check(driver.cuMemAlloc(bytes)))
def export(address): return hexadecimal(check(driver.cuIpcGetMemHandle(address)))
def open_handle(text):
    return int(check(driver.cuIpcOpenMemHandle(opaque(driver.CUipcMemHandle, text), 1)))
def close_handle(address): return code(driver.cuIpcCloseMemHandle(address))
def free(address): return code(driver.cuMemFree(address))
"""


@pytest.fixture
def part(machine: Machine, slice_of: SliceOf) -> Slice:
    return slice_of(machine, memory_bytes=LIMIT)


def test_an_imported_allocation_counts_once_while_its_exporter_lives(part: Slice) -> None:
    exporter, importer = Served(part, PROGRAM), Served(part, PROGRAM)

    address = exporter.ask(f"allocate({PIECE})")
    handle = exporter.ask(f"export({address})")
    assert exporter.ask("agree()") == PIECE
    opened = importer.ask(f"open_handle({handle!r})")
    assert importer.ask("agree()") == PIECE
    assert importer.ask(f"code(driver.cuMemAlloc({LIMIT - PIECE} + 1))") == 2
    assert importer.ask(f"close_handle({opened})") == 0
    assert importer.ask("agree()") == PIECE
    assert exporter.ask(f"free({address})") == 0
    assert exporter.ask("agree()") == 0


def test_it_passes_to_the_importer_when_the_exporter_lets_go(part: Slice) -> None:
    exporter, importer = Served(part, PROGRAM), Served(part, PROGRAM)
    address = exporter.ask(f"allocate({PIECE})")
    handle = exporter.ask(f"export({address})")
    opened = importer.ask(f"open_handle({handle!r})")

    assert exporter.ask(f"free({address})") == 0
    assert exporter.ask("agree()") == PIECE
    assert exporter.ask(f"code(driver.cuMemAlloc({PIECE}))") == 2
    assert importer.ask(f"close_handle({opened})") == 0
    assert exporter.ask(f"code(driver.cuMemAlloc({PIECE}))") == 0
    assert exporter.ask("agree()") == PIECE


def test_it_passes_to_the_importer_when_the_exporter_is_killed(part: Slice) -> None:
    exporter, importer = Served(part, PROGRAM), Served(part, PROGRAM)
    address = exporter.ask(f"allocate({PIECE})")
    exporter.ask("allocate(MIB)")
    handle = exporter.ask(f"export({address})")
    importer.ask(f"open_handle({handle!r})")

    exporter.kill()
    assert importer.ask(f"code(driver.cuMemAlloc({LIMIT - PIECE} + 1))") == 2
    assert importer.ask("agree()") == PIECE
    importer.kill()
    third = Served(part, PROGRAM)
    assert third.ask(f"code(driver.cuMemAlloc({LIMIT}))") == 0
    assert third.ask("agree()") == LIMIT


def test_several_importers_and_repeated_opens_count_once(part: Slice) -> None:
    exporter = Served(part, PROGRAM)
    importers = [Served(part, PROGRAM) for _ in range(3)]
    handle = exporter.ask(f"export(allocate({PIECE}))")

    opened = [importer.ask(f"open_handle({handle!r})") for importer in importers]
    again = importers[0].ask(f"open_handle({handle!r})")
    assert again == opened[0]
    assert exporter.ask("agree()") == PIECE
    exporter.kill()
    assert importers[0].ask(f"close_handle({again})") == 0
    assert importers[0].ask(f"code(driver.cuMemAlloc({LIMIT}))") == 2
    assert importers[0].ask("agree()") == PIECE
    importers[1].kill()
    assert importers[0].ask(f"close_handle({again})") == 0
    assert importers[0].ask("agree()") == PIECE
    assert importers[2].ask(f"close_handle({opened[2]})") == 0
    assert importers[0].ask(f"code(driver.cuMemAlloc({LIMIT}))") == 0


def test_what_another_container_exported_is_charged_to_the_importer(
    machine: Machine, part: Slice, slice_of: SliceOf
) -> None:
    other = slice_of(machine, memory_bytes=LIMIT)
    exporter, importer = Served(other, PROGRAM), Served(part, PROGRAM)
    handle = exporter.ask(f"export(allocate({PIECE}))")

    opened = importer.ask(f"open_handle({handle!r})")
    assert (exporter.ask("ledger_bytes()"), importer.ask("ledger_bytes()")) == (PIECE, PIECE)
    importer.ask("allocate(20 * MIB)")
    assert importer.ask(f"close_handle({opened})") == 0
    assert importer.ask("ledger_bytes()") == 20 * MIB
    importer.ask("allocate(20 * MIB)")
    assert importer.ask(f"open_handle({handle!r})") == {"code": 2}
    assert importer.ask("ledger_bytes()") == 40 * MIB


def test_an_open_mapping_ends_with_its_context(part: Slice) -> None:
    exporter, importer = Served(part, PROGRAM), Served(part, PROGRAM)
    address = exporter.ask(f"allocate({PIECE})")
    handle = exporter.ask(f"export({address})")
    importer.ask(f"open_handle({handle!r})")
    exporter.ask(f"free({address})")

    assert importer.ask("code(driver.cuDevicePrimaryCtxReset(0))") == 0
    assert exporter.ask("agree()") == 0


POOLS = (
    PROGRAM
    + """
POSIX = driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
def make_pool():
    properties = driver.CUmemPoolProps()
    properties.allocType = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.handleTypes = POSIX
    properties.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    properties.location.id = 0
    return check(driver.cuMemPoolCreate(properties))
def take(bytes): return int(check(driver.cuMemAllocFromPoolAsync(bytes, pool, stream)))
def export_pool(): return int(check(driver.cuMemPoolExportToShareableHandle(pool, POSIX, 0)))
def export_pointer(address): return hexadecimal(check(driver.cuMemPoolExportPointer(address)))
def import_pool(process, number):
    global pool
    own = os.open(f"/proc/{process}/fd/{number}", os.O_RDWR)
    pool = check(driver.cuMemPoolImportFromShareableHandle(own, POSIX, 0))
def import_pointer(text):
    data = opaque(driver.CUmemPoolPtrExportData, text)
    return int(check(driver.cuMemPoolImportPointer(pool, data)))
pool = make_pool()
"""
)


def test_an_imported_allocation_of_a_pool_counts_once(part: Slice) -> None:
    exporter, importer = Served(part, POOLS), Served(part, POOLS)
    shared = exporter.ask("take(10 * MIB + 1)")
    exporter.ask("take(2 * MIB)")
    assert exporter.ask("agree()") == 12 * MIB + 512
    importer.ask(f"import_pool({exporter.process.pid}, {exporter.ask('export_pool()')})")
    data = exporter.ask(f"export_pointer({shared})")
    assert exporter.ask("agree()") == 12 * MIB + 512

    imported = importer.ask(f"import_pointer({data!r})")
    assert importer.ask("agree()") == 12 * MIB + 512
    assert exporter.ask(f"free({shared})") == 0
    assert exporter.ask("agree()") == 12 * MIB + 512
    exporter.kill()
    assert importer.ask(f"code(driver.cuMemAlloc({LIMIT}))") == 2
    assert importer.ask("agree()") == 10 * MIB + 512
    assert importer.ask(f"free({imported})") == 0
    assert importer.ask("agree()") == 0


def test_a_pool_takes_shared_memory_back(part: Slice) -> None:
    exporter = Served(part, POOLS)
    exporter.ask("export_pool()")
    for _ in range(3):
        shared = exporter.ask("take(10 * MIB)")
        exporter.ask(f"export_pointer({shared})")
        assert exporter.ask(f"free({shared})") == 0
        assert exporter.ask("agree()") == 0
    held = exporter.ask("take(40 * MIB)")
    assert exporter.ask("agree()") == 40 * MIB
    assert exporter.ask(f"free({held})") == 0
    assert exporter.ask("agree()") == 40 * MIB  # kept until a wait
    assert exporter.ask("code(driver.cuStreamSynchronize(stream))") == 0
    assert exporter.ask("agree()") == 0


def test_a_shared_allocation_outlives_its_pool(part: Slice) -> None:
    exporter, importer = Served(part, POOLS), Served(part, POOLS)
    shared = exporter.ask("take(10 * MIB)")
    importer.ask(f"import_pool({exporter.process.pid}, {exporter.ask('export_pool()')})")
    data = exporter.ask(f"export_pointer({shared})")
    imported = importer.ask(f"import_pointer({data!r})")

    assert exporter.ask("code(driver.cuMemPoolDestroy(pool))") == 0
    assert exporter.ask("globals().update(pool=make_pool())") is None  # in the place of the first
    assert exporter.ask("export_pool()") > 0
    second = exporter.ask("take(20 * MIB)")
    exporter.ask(f"export_pointer({second})")
    assert exporter.ask("agree()") == 30 * MIB
    assert exporter.ask(f"free({shared})") == 0
    assert exporter.ask("take(4 * MIB)") > 0
    assert importer.ask(f"free({imported})") == 0
    assert exporter.ask("agree()") == 24 * MIB


def test_a_handle_opened_and_closed_by_racing_threads_counts_once(part: Slice) -> None:
    exporter, importer = Served(part, PROGRAM), Served(part, PROGRAM + RACING)
    handle = exporter.ask(f"export(allocate({PIECE}))")

    assert importer.ask(f"race({handle!r})") == 0
    assert importer.ask("agree()") == PIECE
    exporter.kill()
    assert importer.ask(f"code(driver.cuMemAlloc({LIMIT}))") == 0


RACING = """
import threading
def race(handle):
    context, wrong = check(driver.cuCtxGetCurrent()), []
    def work():
        check(driver.cuCtxSetCurrent(context))
        for _ in range(100):
            address = open_handle(handle)
            if ledger_bytes() != 40 * MIB or close_handle(address) != 0:
                wrong.append(address)
    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    return len(wrong)
"""


FORK = "os.fork() or (os.close(1), os.close(2), __import__('signal').pause())[0]"


def test_what_was_shared_stays_charged_while_a_child_of_its_last_holder_has_the_gpu(
    machine: Machine, part: Slice
) -> None:
    exporter, other = Served(part, PROGRAM), Served(part, PROGRAM)
    exporter.ask(f"export(allocate({PIECE}))")
    child = exporter.ask(FORK)

    exporter.kill()

    assert machine.books()[0].memory_used_bytes == PIECE
    assert other.ask(f"code(driver.cuMemAlloc({LIMIT - PIECE} + 1))") == 2
    os.kill(child, signal.SIGKILL)
    wait_until(lambda: machine.books()[0].memory_used_bytes == 0, "the child has ended")
    assert other.ask(f"code(driver.cuMemAlloc({LIMIT}))") == 0
    assert other.ask("agree()") == LIMIT


def test_a_child_has_what_its_parent_shared_beside_a_piece_that_it_let_go(part: Slice) -> None:
    exporter, other = Served(part, PROGRAM), Served(part, PROGRAM)
    first, second = (exporter.ask(f"allocate({size})") for size in (4 * MIB, PIECE))
    exporter.ask(f"[export({first}), export({second}), free({first})]")
    child = exporter.ask(FORK)

    exporter.kill()

    assert other.ask(f"code(driver.cuMemAlloc({LIMIT - PIECE} + 1))") == 2
    os.kill(child, signal.SIGKILL)
    wait_until(lambda: other.ask(f"code(driver.cuMemAlloc({LIMIT}))") == 0, "the child has ended")


def test_a_child_shares_nothing_of_its_parents(part: Slice) -> None:
    exporter, importer = Served(part, PROGRAM), Served(part, PROGRAM)
    address = exporter.ask(f"allocate({PIECE})")
    handle = exporter.ask(f"export({address})")
    importer.ask(f"open_handle({handle!r})")

    child = exporter.ask(FORK)
    try:
        assert exporter.ask(f"free({address})") == 0
        importer.kill()
        assert exporter.ask(f"code(driver.cuMemAlloc({LIMIT}))") == 0  # the child holds nothing
        assert exporter.ask("agree()") == LIMIT
    finally:
        assert exporter.ask(f"os.kill({child}, 9)") is None
