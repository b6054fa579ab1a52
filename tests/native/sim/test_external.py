"""Memory of other interfaces on the simulated GPU."""

from pathlib import Path

import pytest

from libvgpu.sim import Machine
from support.sim.programs import said_in
from support.sim.sharing import GRANULE, SERVE, Program, hand_over, pair

EXTERNAL = """
from support.shim.cuda_arrays import *
KINDS = cuda.CUexternalMemoryHandleType
def file_of(size):
    descriptor = os.memfd_create("other interface")
    os.ftruncate(descriptor, size)
    return descriptor
def describe(descriptor, size, kind=KINDS.CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD, flags=0):
    made = cuda.CUDA_EXTERNAL_MEMORY_HANDLE_DESC()
    made.type, made.handle.fd, made.size, made.flags = kind, descriptor, size, flags
    return made
def bring(descriptor, size, **fields):
    return check(cuda.cuImportExternalMemory(describe(descriptor, size, **fields)))
def buffer(memory, offset, size):
    made = cuda.CUDA_EXTERNAL_MEMORY_BUFFER_DESC()
    made.offset, made.size = offset, size
    return cuda.cuExternalMemoryGetMappedBuffer(memory, made)
def levels_of(memory, offset, levels, *extent, **fields):
    made = cuda.CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC()
    made.offset, made.arrayDesc, made.numLevels = offset, form(*extent, **fields), levels
    return cuda.cuExternalMemoryGetMappedMipmappedArray(memory, made)
def done(memory): return code(cuda.cuDestroyExternalMemory(memory))
"""


def test_memory_of_another_interface_counts_until_nothing_of_it_is_left(machine: Machine) -> None:
    code = """
descriptor = file_of(3 * GRANULE)
steps = [used()]
memory = bring(descriptor, 3 * GRANULE)
one = check(buffer(memory, 0, GRANULE))
levels = check(levels_of(memory, GRANULE, 3, 512, 512))
steps += [used(), done(memory), used(), code(cuda.cuMemFree(one)), used()]
steps += [code(cuda.cuMipmappedArrayDestroy(levels)), used()]
say(steps=steps, late=code(cuda.cuMemFree(one)))
"""
    assert said_in(machine, SERVE + EXTERNAL + code) == {
        "steps": [0, 3, 0, 3, 0, 3, 0, 0],
        "late": 1,
    }


def test_an_import_is_charged_to_the_byte_at_every_import(machine: Machine) -> None:
    code = """
descriptor = file_of(1 << 20)
again, start = os.dup(descriptor), own()
first = bring(descriptor, 1000)
once = own() - start
second = bring(again, 1 << 20)
say(once=once, both=own() - start, done=[done(first), done(second)], left=own() - start,
    closed=[os.path.exists(f"/proc/self/fd/{each}") for each in (descriptor, again)])
"""
    assert said_in(machine, SERVE + EXTERNAL + code) == {
        "once": 1024,
        "both": 1024 + (1 << 20),
        "done": [0, 0],
        "left": 0,
        "closed": [False, False],
    }


def test_buffers_and_arrays_show_the_bytes_of_the_file(machine: Machine) -> None:
    code = """
descriptor = file_of(1 << 16)
os.pwrite(descriptor, b"of the other side", 5000)
watch = os.dup(descriptor)
memory = bring(descriptor, 1 << 16)
whole, part = (int(check(buffer(memory, *part))) for part in ((0, 1 << 16), (5000, 100)))
seen = [text(whole + 5000, 17), text(part, 17)]
write(part + 7, b"nice")
seen.append(os.pread(watch, 17, 5000).decode())
levels = check(levels_of(memory, 8192, 2, 64, 64))
level = check(cuda.cuMipmappedArrayGetLevel(levels, 0))
copied = copy_2d(level, b"L" * 64, (64, 1), srcPitch=64)
range_ = check(cuda.cuMemGetAddressRange(part + 50))
say(seen=seen, copied=copied, level=text(whole + 8192, 3), beyond=write(part, bytes(101)),
    range=[int(range_[0]) - part, int(range_[1])])
"""
    assert said_in(machine, SERVE + EXTERNAL + code) == {
        "seen": ["of the other side"] * 2 + ["of the nicer side"],
        "copied": 0,
        "level": "LLL",
        "beyond": 1,
        "range": [0, 100],
    }


def test_external_memory_ends_with_its_context(machine: Machine) -> None:
    code = """
memory = bring(file_of(GRANULE), GRANULE)
check(buffer(memory, 0, 4096))
before = used()
check(cuda.cuDevicePrimaryCtxReset(0))
open_context()
say(before=before, after=used(), late=code(buffer(memory, 0, 4096)), done=done(memory))
"""
    assert said_in(machine, SERVE + EXTERNAL + code) == {
        "before": 1,
        "after": 0,
        "late": 709,
        "done": 0,
    }


@pytest.mark.parametrize("exporter_first", [True, False])
def test_an_imported_piece_counts_once_and_lives_with_any_holder(
    machine: Machine, tmp_path: Path, exporter_first: bool
) -> None:
    with pair(machine) as (exporter, importer):
        exporter.ask("put('piece', create(4, exported=True)) or put('place', reserve(4))")
        exporter.ask("map_at(place, piece, 4) or grant(place, 4) or write(place, b'across')")
        exporter.ask("put('out', check(cuda.cuMemExportToShareableHandle(piece, POSIX, 0)))")
        hand_over(exporter, importer, "out", tmp_path / "line")
        define(importer)
        importer.ask("put('memory', bring(given, 4 * GRANULE))")
        importer.ask("put('whole', check(buffer(memory, 0, 4 * GRANULE)))")
        assert importer.ask("text(whole, 6)") == "across"
        assert importer.ask("used()") == 4
        ends = [
            (exporter, "unmap(place, 4) or code(cuda.cuMemRelease(piece))"),
            (importer, "code(cuda.cuMemFree(whole)) or done(memory)"),
        ]
        define(exporter)
        for program, end in ends if exporter_first else reversed(ends):
            assert machine.books()[0].memory_used_bytes == 4 * GRANULE
            assert program.ask(end) == 0
        assert machine.books()[0].memory_used_bytes == 0


def define(program: Program) -> None:
    """Gives a serving program the names of `EXTERNAL`."""
    program.ask(f"exec({EXTERNAL!r}, globals())")


DESCRIBED = {
    "describe(file_of(4096), 4096, flags=1)": 0,  # dedicated
    "describe(file_of(4096), 4097)": 400,
    "describe(file_of(4096), 0)": 1,
    "describe(file_of(4096), 4096, flags=2)": 1,
    "describe(os.pipe()[0], 4096)": 400,
    "describe(999, 4096)": 400,
    "describe(os.open('/dev/null', os.O_RDWR), 4096)": 400,
    "describe(file_of(4096), 4096, KINDS.CU_EXTERNAL_MEMORY_HANDLE_TYPE_NVSCIBUF)": 801,
    "describe(check(cuda.cuMemExportToShareableHandle(shared, POSIX, 0)), GRANULE + 1)": 1,
}


def test_what_is_no_such_memory_is_refused_and_its_descriptor_kept(machine: Machine) -> None:
    tries = ", ".join(f"attempt(lambda: {description})" for description in DESCRIBED)
    program = f"""
shared = create(exported=True)
def attempt(description):
    start, wanted = own(), description()
    answer = code(cuda.cuImportExternalMemory(wanted))
    number = wanted.handle.fd
    kept = number == 999 or os.path.exists("/proc/self/fd/%d" % number)
    return [answer, kept, own() - start]
say(tries=[{tries}])
"""
    said = said_in(machine, SERVE + EXTERNAL + program)["tries"]

    assert dict(zip(DESCRIBED, said, strict=True)) == {
        description: [code, code != 0, 4096 if code == 0 else 0]
        for description, code in DESCRIBED.items()
    }


def test_memory_that_the_gpu_has_no_room_for_is_refused(machine: Machine) -> None:
    code = """
free, total = check(cuda.cuMemGetInfo())
check(cuda.cuMemAlloc(free - 4096))
descriptor = file_of(8192)
say(refused=code(cuda.cuImportExternalMemory(describe(descriptor, 4097))),
    fits=code(cuda.cuImportExternalMemory(describe(descriptor, 4096))))
"""
    assert said_in(machine, SERVE + EXTERNAL + code) == {"refused": 2, "fits": 0}


def test_parts_that_do_not_lie_in_the_memory_are_refused(machine: Machine) -> None:
    code = """
memory = bring(file_of(8192), 8192)
say(buffers=[code(buffer(memory, at, size)) for at, size in
             ((0, 8192), (8191, 1), (0, 0), (0, 8193), (8192, 1), (1 << 63, 1 << 63))],
    levels=[code(levels_of(memory, at, 1, 64, rows)) for at, rows in ((0, 128), (0, 136), (512, 128))],
    deferred=code(levels_of(memory, 0, 1, 64, 8, Flags=cuda.CUDA_ARRAY3D_DEFERRED_MAPPING)))
"""  # noqa: E501
    assert said_in(machine, SERVE + EXTERNAL + code) == {
        "buffers": [0, 0, 1, 1, 1, 1],
        "levels": [0, 1, 1],
        "deferred": 1,
    }
