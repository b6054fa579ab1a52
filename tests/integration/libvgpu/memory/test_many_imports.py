"""Eight ranks that give 64 pieces of memory each to all others, as NCCL does."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from libvgpu import ledger_view
from libvgpu.ledger_view import read_ledger
from libvgpu.sim import PROFILES, Machine
from support.shim.served import Served
from support.shim.slices import Slice, SliceOf
from support.waiting import PATIENCE_S

RANKS, PIECES = 8, 64
GRANULE = 2 << 20
HELD = PIECES * GRANULE

TEXT = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
RANK, FOLDER = {rank}, {folder!r}
POSIX = driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
open_context(RANK)
line = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
line.bind(f"{{FOLDER}}/{{RANK}}")
own, taken = [], {{}}
def make():
    wanted = driver.CUmemAllocationProp()
    wanted.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    wanted.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    wanted.location.id, wanted.requestedHandleTypes = RANK, POSIX
    own.extend(check(driver.cuMemCreate({granule}, wanted, 0)) for _ in range({pieces}))
def give():
    given = [int(check(driver.cuMemExportToShareableHandle(each, POSIX, 0))) for each in own]
    for peer in range({ranks}):
        if peer != RANK:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as to:
                to.connect(f"{{FOLDER}}/{{peer}}")
                socket.send_fds(to, [bytes([RANK])], given)
    for each in given: os.close(each)
def take():
    for _ in range({ranks} - 1):
        giver, given, _, _ = socket.recv_fds(line, 1, {pieces})
        taken[giver[0]] = [take_one(each) for each in given]
def take_one(descriptor):
    handle = check(driver.cuMemImportFromShareableHandle(descriptor, POSIX))
    address = check(driver.cuMemAddressReserve({granule}, 0, 0, 0))
    mapped = code(driver.cuMemMap(address, {granule}, 0, handle, 0))
    os.close(descriptor)
    check(driver.cuMemRelease(handle))
    return address, mapped
def refused(): return sum(mapped != 0 for all in taken.values() for _, mapped in all)
def let_go(giver): return [code(driver.cuMemUnmap(at, {granule})) for at, _ in taken.pop(giver)]
def release(): return [code(driver.cuMemRelease(each)) for each in own]
def open_files(): return len(os.listdir("/proc/self/fd"))
"""


@pytest.fixture
def part(tmp_path: Path, slice_of: SliceOf, monkeypatch: pytest.MonkeyPatch) -> Slice:
    monkeypatch.setattr(ledger_view, "PROBE_SECONDS", PATIENCE_S)  # asks the kernel 4,000 times
    profile = replace(PROFILES["h100-80g"], context_bytes=0)
    machine = Machine.create([profile] * RANKS, tmp_path / "machine")
    return slice_of(machine, memory_bytes=1 << 30, gpus=RANKS)


@pytest.fixture
def ranks(part: Slice, short_path: Path) -> list[Served]:
    texts = [
        TEXT.format(rank=rank, folder=str(short_path), granule=GRANULE, pieces=PIECES, ranks=RANKS)
        for rank in range(RANKS)
    ]
    return [Served(part, text) for text in texts]


def charged(part: Slice) -> list[int]:
    """Returns what the ledger has of each GPU, which is what the GPU has."""
    ledger = list(read_ledger(part.directory).used_bytes)
    assert ledger == [each.memory_used_bytes for each in part.machine.books()]
    return ledger


def all_of(ranks: list[Served], expression: str) -> list[object]:
    for rank in ranks:
        rank.tell(expression)
    return [json.loads(rank.hear()) for rank in ranks]


def test_each_piece_is_charged_once_whoever_ends_first(part: Slice, ranks: list[Served]) -> None:
    all_of(ranks, "make()")
    all_of(ranks, "give()")
    assert charged(part) == [HELD] * RANKS
    all_of(ranks, "take()")
    assert all_of(ranks, "refused()") == [0] * RANKS
    assert charged(part) == [HELD] * RANKS

    ranks[0].kill()  # an exporter, whose pieces the others still have
    assert charged(part) == [HELD] * RANKS
    ranks[1].ask("release()")  # another, which lets them go
    assert charged(part) == [HELD] * RANKS
    for rank in ranks[1:7]:
        rank.ask("let_go(0)")
    assert charged(part) == [HELD] * RANKS
    ranks[7].ask("let_go(0)")
    assert charged(part) == [0] + [HELD] * (RANKS - 1)
    ranks[7].kill()  # an importer
    assert charged(part) == [0] + [HELD] * (RANKS - 1)
    for rank in ranks[2:7]:
        rank.ask("let_go(1)")
    assert charged(part) == [0, 0] + [HELD] * (RANKS - 2)
    for rank in ranks[1:7]:
        rank.kill()
    assert charged(part) == [0] * RANKS
