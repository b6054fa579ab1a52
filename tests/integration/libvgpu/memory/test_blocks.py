"""Memory is charged as the GPU gives it: in blocks, and small pieces by the slabs they lie in.

The simulated GPU gives it as an H100 did; what the slice charges is held against the GPU's books.
"""

from pathlib import Path

import pytest

from libvgpu.sim import Machine
from support import IS_LONG
from support.lines import expect, next_line, tell
from support.shim.slices import Slice, SliceOf
from support.shim.walk import assert_exact, look_at, walk
from support.sim.measured import measured_machine

MIB = 1 << 20
BLOCK = 2 * MIB
ROOM_BLOCKS = 16
PROCESSES = 8
#: Of each process; each alone holds more than the slice after some thousand.
STEPS = 100_000 if IS_LONG else 1500

OPEN = """
from support.shim.cuda_client import *
import sys
open_context()
def piece(size):
    code, address = driver.cuMemAlloc(size)
    return int(address) if int(code) == 0 else None
def fill(size, most=1 << 30):
    pieces = []
    while len(pieces) < most and (address := piece(size)) is not None: pieces.append(address)
    return pieces
def free(address): check(driver.cuMemFree(address))
"""


@pytest.fixture
def part(tmp_path: Path, slice_of: SliceOf) -> Slice:
    """A slice of an H100 with room for a context and 16 blocks."""
    machine = measured_machine(tmp_path)
    context_bytes = machine.devices[0].profile.context_bytes
    made = slice_of(machine, memory_bytes=context_bytes + ROOM_BLOCKS * BLOCK)
    made.change(context_bytes=context_bytes)
    return made


@pytest.mark.parametrize(
    "size", [700, 4096, 100_000, 600_000, MIB, MIB + 1, BLOCK, BLOCK + 1, 3_000_001, 5 * MIB]
)
def test_as_many_pieces_are_granted_as_the_gpu_gives_blocks_for(part: Slice, size: int) -> None:
    steps = -(-size // 512) * 512
    is_small = size <= MIB
    fits = BLOCK // steps * ROOM_BLOCKS if is_small else ROOM_BLOCKS // -(-size // BLOCK)

    code = f"pieces = fill({size})\nprint(len(pieces)); look('full')"
    looks, words = walk(part, OPEN + code)

    assert int(words[0]) == fits
    assert_exact(looks)
    limit_bytes = part.machine.devices[0].profile.context_bytes + ROOM_BLOCKS * BLOCK
    assert looks["full"].taken_bytes <= limit_bytes


@pytest.mark.parametrize("told", [0, BLOCK, 3 * MIB, 1 << 40])
def test_a_gpu_whose_blocks_the_host_knows_is_not_asked(part: Slice, told: int) -> None:
    part.change(block_bytes=told)

    looks, _ = walk(part, OPEN + "piece(MIB + 1); look('one')")

    assert_exact(looks)
    device = part.machine.devices[0]
    peak_bytes = part.machine.books()[0].memory_peak_bytes - device.profile.context_bytes
    assert (peak_bytes == BLOCK) == (told == BLOCK)  # a question takes two pieces for an instant


def test_at_the_limit_a_piece_still_goes_where_a_slab_has_room(part: Slice) -> None:
    code = """
large = fill(600_000)
look("large")
rest = fill(296_960)
print(len(rest)); look("rest")
print(piece(100_000))
free(large[1])
print(piece(600_065) is None, piece(599_000) is not None, piece(600_000)); look("again")
"""
    looks, words = walk(part, OPEN + code)

    assert words[:2] == [str(ROOM_BLOCKS), "None"]
    assert words[2:] == ["True", "True", "None"]
    assert_exact(looks)
    assert len({seen.charged_bytes for seen in looks.values()}) == 1


def test_what_was_refused_at_the_limit_opened_no_slab_for_an_instant(part: Slice) -> None:
    """Many small pieces are asked for while every slab has bytes free, but none in one place."""
    code = """
pieces = fill(1000)
for address in pieces[::2]: free(address)
look("full")
print(any(piece(3000) is not None for _ in range(500)))
"""
    looks, words = walk(part, OPEN + code)

    assert words == ["False"]
    assert_exact(looks)
    assert part.machine.books()[0].memory_peak_bytes == looks["full"].taken_bytes


def test_a_slab_is_charged_from_its_first_piece_to_its_last(part: Slice) -> None:
    code = """
look("none")
pieces = [piece(size) for size in (1, 700, 5000, 400_000)]
look("four")
for address in pieces[:3]: free(address)
look("one")
other = piece(600_000); look("two")
free(pieces[3]); free(other); look("no more")
"""
    looks, _ = walk(part, OPEN + code)

    assert_exact(looks)
    grown = {name: seen.charged_bytes - looks["none"].charged_bytes for name, seen in looks.items()}
    assert grown == {"none": 0, "four": BLOCK, "one": BLOCK, "two": BLOCK, "no more": 0}


def test_what_is_shown_as_free_can_be_had_in_one_piece(part: Slice) -> None:
    code = """
small = [piece(1000), piece(MIB), piece(MIB)]
shown = check(driver.cuMemGetInfo())[0]
print(shown, piece(shown + 1), piece(shown) is not None, check(driver.cuMemGetInfo())[0])
look("full")
"""
    looks, words = walk(part, OPEN + code)

    assert words == [str((ROOM_BLOCKS - 2) * BLOCK), "None", "True", "0"]
    assert_exact(looks)


def test_rows_arrays_and_managed_memory_are_charged_in_blocks_too(part: Slice) -> None:
    code = """
look("none")
rows, pitch = check(driver.cuMemAllocPitch(700, 3000, 4))
look("rows")
small, _ = check(driver.cuMemAllocPitch(700, 3, 4))
look("small rows")
form = driver.CUDA_ARRAY_DESCRIPTOR()
form.Width, form.Height, form.NumChannels = 1024, 700, 1
form.Format = driver.CUarray_format.CU_AD_FORMAT_FLOAT
array = check(driver.cuArrayCreate(form)); look("array")
free(rows); free(small); check(driver.cuArrayDestroy(array)); look("no more")
managed = check(driver.cuMemAllocManaged(5 * MIB + 1, 1))
check(driver.cuMemsetD8(managed, 1, 5 * MIB + 1)); check(driver.cuCtxSynchronize())
look("managed")
"""
    looks, _ = walk(part, OPEN + code)

    assert_exact(looks)


def test_a_piece_freed_in_a_streams_order_stays_charged_until_it_is_reached(part: Slice) -> None:
    code = """
look("none")
pieces = [piece(1000), piece(2000)]
stream = check(driver.cuStreamCreate(0))
for address in pieces: check(driver.cuMemFreeAsync(address, stream))
check(driver.cuStreamSynchronize(stream)); look("freed")
"""
    looks, _ = walk(part, OPEN + code)

    assert looks["freed"].charged_bytes - looks["none"].charged_bytes in (0, BLOCK)
    assert looks["freed"].taken_bytes <= looks["freed"].charged_bytes + BLOCK  # of the stream


def test_slabs_of_a_context_end_with_it(part: Slice) -> None:
    code = """
driver.cuCtxPushCurrent(check(driver.cuDevicePrimaryCtxRetain(0)))
pieces = [piece(1000), piece(MIB), piece(MIB), piece(3 * MIB)]
check(driver.cuDevicePrimaryCtxReset(0)); look("ended")
"""
    looks, _ = walk(part, OPEN + code)

    assert looks["ended"].charged_bytes == looks["ended"].taken_bytes == 0


def test_threads_that_share_slabs_leave_nothing_behind(part: Slice) -> None:
    code = """
import random, threading
look("none")
context = check(driver.cuCtxGetCurrent())
def work(seed):
    check(driver.cuCtxSetCurrent(context))
    chance, held = random.Random(seed), []
    for _ in range(3000):
        if held and chance.random() < 0.5: free(held.pop(chance.randrange(len(held))))
        elif (address := piece(chance.randrange(1, 300_000))) is not None: held.append(address)
    for address in held: free(address)
threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
look("no more")
"""
    looks, _ = walk(part, OPEN + code)

    assert_exact(looks)
    assert looks["no more"] == looks["none"]


TAKE_AND_GIVE = (
    OPEN
    + """
import math, random
chance, held, refused = random.Random(int(sys.argv[1])), [], 0
print("ready", flush=True); sys.stdin.readline()
for _ in range(int(sys.argv[2])):
    size = int(700 * math.exp(chance.random() * math.log(64 * MIB / 700)))
    if len(held) > 200 or (held and chance.random() < 0.4):
        free(held.pop(chance.randrange(len(held))))
    elif (address := piece(size)) is not None: held.append(address)
    else:
        refused += 1
        for _ in range(len(held) // 4): free(held.pop(chance.randrange(len(held))))
print("stop", refused, flush=True); sys.stdin.readline()
"""
)


def test_processes_that_take_and_give_never_hold_a_byte_more_than_their_slice(
    tmp_path: Path, slice_of: SliceOf
) -> None:
    machine = measured_machine(tmp_path)
    context_bytes = machine.devices[0].profile.context_bytes
    limit_bytes = PROCESSES * context_bytes + 1024 * MIB
    part = slice_of(machine, memory_bytes=limit_bytes)
    part.change(context_bytes=context_bytes)
    programs = [part.start(TAKE_AND_GIVE, str(seed), str(STEPS)) for seed in range(PROCESSES)]
    for program in programs:
        expect(program)
    for program in programs:
        tell(program)

    refused = 0
    for program in programs:
        words = next_line(program).split()
        assert words[0] == "stop", program.communicate()[1]
        refused += int(words[1])
    quiet = look_at(part)

    assert refused > 0
    assert limit_bytes - 64 * MIB < part.machine.books()[0].memory_peak_bytes <= limit_bytes
    assert quiet.charged_bytes == quiet.taken_bytes


def test_a_gpu_that_gives_what_was_asked_is_charged_that(
    machine: Machine, slice_of: SliceOf
) -> None:
    part = slice_of(machine, memory_bytes=64 * MIB)
    code = "pieces = fill(600_000)\nprint(len(pieces)); look('full')"

    looks, words = walk(part, OPEN + code)

    assert int(words[0]) == 64 * MIB // (-(-600_000 // 512) * 512)
    assert_exact(looks)
