"""The simulated GPU gives memory in blocks, and small pieces in slabs, as the H100 did."""

from pathlib import Path

import pytest

from libvgpu.sim import Machine
from support.lines import next_line, tell
from support.sim.measured import MIB, SHOWN, measured_machine, said_by, shown_memory
from support.sim.programs import finish, start
from support.sim.sharing import pair

INVALID_VALUE, OUT_OF_MEMORY = 1, 2
KEYS = ("grew", "distinct_2mib", "most_in_one", "gap", "half_freed", "all_freed")


@pytest.fixture
def measured(tmp_path: Path) -> Machine:
    return measured_machine(tmp_path)


def test_pieces_of_one_size(measured: Machine) -> None:
    shown = [[row["bytes"], *(row[key] for key in KEYS)] for row in SHOWN["blocks"]]
    counts = {row["bytes"]: row["pieces"] for row in SHOWN["blocks"]}

    code = f"""
def try_size(size, count):
    pieces = [int(check(cuda.cuMemAlloc(size))) for _ in range(count)]
    full = grew()
    blocks = {{}}
    for piece in pieces: blocks[piece >> 21] = blocks.get(piece >> 21, 0) + 1
    ordered = sorted(pieces)
    gap = min(b - a for a, b in zip(ordered, ordered[1:]))
    for piece in pieces[::2]: check(cuda.cuMemFree(piece))
    half = grew()
    for piece in pieces[1::2]: check(cuda.cuMemFree(piece))
    return [size, full, len(blocks), max(blocks.values()), gap, half, grew()]
say(value=[try_size(size, count) for size, count in {counts}.items()])
"""
    assert said_by(measured, code) == shown


def test_pieces_of_all_sizes_share_a_slab(measured: Machine) -> None:
    shown = shown_memory("mixed_sizes_slabs")
    sizes = [int(size) for size in shown["offsets"]]

    code = f"""
pieces = [int(check(cuda.cuMemAlloc(size))) for size in {sizes}]
say(value=[grew(), pieces[0] % (2 * MIB), [piece - pieces[0] for piece in pieces],
           len(set(piece >> 21 for piece in pieces))])
"""
    assert said_by(measured, code) == [shown["grew"], 0, list(shown["offsets"].values()), 1]


def test_a_place_that_becomes_free_is_the_next_ones(measured: Machine) -> None:
    code = """
pieces = [int(check(cuda.cuMemAlloc(MIB // 2))) for _ in range(9)]  # two slabs and a quarter
check(cuda.cuMemFree(pieces[1]))
same = int(check(cuda.cuMemAlloc(MIB // 2))) == pieces[1]
check(cuda.cuMemFree(pieces[5])); check(cuda.cuMemFree(pieces[2]))
again = [int(check(cuda.cuMemAlloc(size))) for size in (MIB // 2 + 1, 1, MIB // 2, MIB // 2)]
whole = int(check(cuda.cuMemAlloc(2 * MIB)))
for piece in pieces[4:5] + pieces[6:8] + again[2:3]: check(cuda.cuMemFree(piece))
say(value=[same, pieces.index(again[1]), pieces.index(again[2]), again[0] - pieces[8],
           again[3] > again[0], whole % (2 * MIB), grew() // MIB])
"""
    assert said_by(measured, code) == [True, 2, 5, MIB // 2, True, 0, 6]


def test_arrays_pitched_memory_and_variables_lie_in_slabs_as_well(measured: Machine) -> None:
    code = """
small = int(check(cuda.cuMemAlloc(1)))
pitched, pitch = check(cuda.cuMemAllocPitch(100, 10, 4))
form = cuda.CUDA_ARRAY_DESCRIPTOR()
form.Width, form.Height, form.NumChannels = 64, 8, 1
form.Format = cuda.CUarray_format.CU_AD_FORMAT_FLOAT
array = check(cuda.cuArrayCreate(form))
module = check(cuda.cuModuleLoadData(
    b".version 7.0\\n.target sm_50\\n.address_size 64\\n.global .b8 table[3000];\\n\\0"))
table, bytes = check(cuda.cuModuleGetGlobal(module, b"table"))
one = grew()
check(cuda.cuMemFree(small)); check(cuda.cuMemFree(pitched)); check(cuda.cuArrayDestroy(array))
kept = grew()
check(cuda.cuModuleUnload(module))
large = check(cuda.cuMemAllocPitch(1 << 20, 3, 4))
say(value=[one, int(pitched) - small, int(table) >> 21 == small >> 21, bytes, kept, grew()])
"""
    assert said_by(measured, code) == [2 * MIB, 512, True, 3000, 2 * MIB, 4 * MIB]


def test_a_piece_ends_where_it_ends(measured: Machine) -> None:
    code = """
first, second = (int(check(cuda.cuMemAlloc(1000))) for _ in range(2))
ranges = [[int(value) for value in check(cuda.cuMemGetAddressRange(piece + 7))]
          for piece in (first, second)]
for piece, value in ((first, 1), (second, 2)): check(cuda.cuMemsetD8(piece, value, 1000))
byte = ctypes.create_string_buffer(1000)
def content(piece):
    check(cuda.cuMemcpyDtoH(byte, piece, 1000))
    return sorted(set(byte.raw))
held = [content(first), content(second)]
check(cuda.cuMemsetD8(first, 0, 1000))
cleared = [content(first), content(second)]
say(value=[[[a - first, b] for a, b in ranges], held, cleared, [code(answer) for answer in (
    cuda.cuMemsetD8(first, 3, 1001), cuda.cuMemcpyDtoD(first, second, 1024),
    cuda.cuMemFree(first + 512), cuda.cuMemsetD8(first + 1000, 3, 1), cuda.cuMemFree(first),
    cuda.cuMemFree(first), cuda.cuMemsetD8(first, 3, 1), cuda.cuMemFree(second))]])
"""
    seen = said_by(measured, code)

    assert seen[0] == [[0, 1000], [1024, 1000]]
    assert seen[1] == [[1], [2]]
    assert seen[2] == [[0], [2]]
    assert seen[3] == [INVALID_VALUE] * 4 + [0, INVALID_VALUE, INVALID_VALUE, 0]


def test_a_full_device_refuses_the_next_slab_and_still_fills_the_last(measured: Machine) -> None:
    code = """
first = check(cuda.cuMemAlloc(1000))
check(cuda.cuMemAlloc(check(cuda.cuMemGetInfo())[0] // (2 * MIB) * 2 * MIB))
pieces, refused = allocate_until_refused(MIB)
smaller, again = allocate_until_refused(512)
say(value=[check(cuda.cuMemGetInfo())[0] < 2 * MIB, len(pieces), refused,
           len(smaller), again, code(cuda.cuMemAlloc(2 * MIB))])
"""
    seen = said_by(measured, code)

    # a MiB of 2048 units and two of the first piece lie in the slab already
    assert seen == [True, 1, OUT_OF_MEMORY, 4096 - 2048 - 2, OUT_OF_MEMORY, OUT_OF_MEMORY]


def test_each_context_has_slabs_of_its_own(measured: Machine) -> None:
    code = """
check(cuda.cuMemAlloc(1))
other = check(create_context())
check(cuda.cuMemAlloc(1))
both = grew() - 518 * MIB
check(cuda.cuCtxDestroy(other))
say(value=[both, grew()])
"""
    assert said_by(measured, code) == [4 * MIB, 2 * MIB]


def test_what_shares_a_slab_with_an_exported_piece_stays_usable(measured: Machine) -> None:
    with pair(measured) as (exporter, importer):
        exporter.ask("put('p', [int(check(cuda.cuMemAlloc(1000))) for _ in range(3)])")
        for piece, text in enumerate(("first", "second", "third")):
            assert exporter.ask(f"write(p[{piece}], b'{text}')") == 0
        handles = [exporter.ask(f"ipc_handle(p[{piece}])") for piece in (0, 1)]

        importer.ask(f"put('q', [ipc_open(handle) for handle in {handles * 2}])")
        assert importer.ask("[text(q[0], 5), text(q[1], 6)]") == ["first", "second"]
        assert importer.ask("[q[0] == q[2], q[0] == q[1]]") == [True, False]
        assert importer.ask("[int(check(cuda.cuMemGetAddressRange(q[1]))[1])]") == [1000]
        assert importer.ask("int(cuda.cuMemsetD8(q[1], 3, 1001)[0])") == INVALID_VALUE
        assert importer.ask("write(q[1], b'return')") == 0
        assert exporter.ask("[text(p[0], 5), text(p[1], 6), text(p[2], 5)]") == [
            "first",
            "return",
            "third",
        ]
        assert measured.books()[0].memory_used_bytes == (2 * 518 + 2) * MIB

        # what it frees the exporter may use again, and the slab is the importer's afterwards, too
        assert exporter.ask("int(cuda.cuMemFree(p[2])[0])") == 0
        assert exporter.ask("int(check(cuda.cuMemAlloc(1000))) == p[2]") is True
        assert exporter.ask("[int(cuda.cuMemFree(piece)[0]) for piece in p]") == [0, 0, 0]
        held = {c.pid: c.memory_bytes for c in measured.books()[0].clients}
        assert held == {exporter.process.pid: 518 * MIB, importer.process.pid: 520 * MIB}
        assert importer.ask("text(q[1], 6)") == "return"
        for piece in range(4):
            assert importer.ask(f"int(cuda.cuIpcCloseMemHandle(q[{piece}])[0])") == 0
        assert measured.books()[0].memory_used_bytes == 2 * 518 * MIB


def test_host_memory_behind_a_slab_counts_once(measured: Machine) -> None:
    code = """
open_context()
pieces = [check(cuda.cuMemAlloc(1000)) for _ in range(100)]
for piece in pieces: check(cuda.cuMemsetD8(piece, 1, 1000))
print("written", flush=True)
sys.stdin.readline()
for piece in pieces: check(cuda.cuMemFree(piece))
print("freed", flush=True)
sys.stdin.readline()
"""
    exporter = start(measured, code)
    try:
        next_line(exporter)
        assert measured.books()[0].backed_bytes == 2 * 65536
        tell(exporter)
        next_line(exporter)
        assert measured.books()[0].backed_bytes == 0
    finally:
        finish(exporter, "\n")
