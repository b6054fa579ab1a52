"""What an image of device code takes, read by the shim before it is loaded."""

import struct
import subprocess
from pathlib import Path

import pytest

from support import IS_LONG, ROOT, Compile
from support.device_code import (
    ELF_KIND,
    LZ4,
    PTX_KIND,
    STT_OBJECT,
    ZSTD,
    Cubin,
    cubin,
    fatbin,
    kernel,
    ptx,
)

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
GRANULE = 512
CEILING = 1 << 41
LTO_KIND = 8
SOURCES = tuple(
    f"libvgpu/src/code/{stem}.c"
    for stem in (
        "image_view",
        "image_size",
        "ptx_size",
        "cubin_size",
        "fatbin_size",
        "lz4_block",
        "zstd_block",
        "zstd_entropy",
        "zstd_frame",
    )
)
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined")
FUZZED = 20_000 if IS_LONG else 2_000


@pytest.fixture(scope="module")
def program(compile_program: Compile) -> Path:
    return compile_program("image_size.c", *SOURCES)


class Reader:
    """Asks the C reader for the variables' bytes of images, and whether all could be read."""

    def __init__(self, program: Path, folder: Path) -> None:
        self.program = program
        self.folder = folder

    def __call__(self, *images: bytes, architecture: int = 90) -> list[tuple[int, bool]]:
        return [
            (variables, known)
            for variables, _, known in self.all(*images, architecture=architecture)
        ]

    def all(self, *images: bytes, architecture: int = 90) -> list[tuple[int, int, bool]]:
        paths = []
        for number, image in enumerate(images):
            paths.append(self.folder / str(number))
            paths[-1].write_bytes(image)
        done = subprocess.run(
            [self.program, str(architecture), *paths],
            check=True,
            text=True,
            stdout=subprocess.PIPE,
            timeout=60,
        )
        rows = [[int(word) for word in line.split()] for line in done.stdout.splitlines()]
        return [(variables, code, not unknown) for variables, code, unknown in rows]


@pytest.fixture
def read(program: Path, tmp_path: Path) -> Reader:
    return Reader(program, tmp_path)


@pytest.mark.parametrize(
    ("declaration", "expected"),
    [
        (".visible .global .align 4 .b8 x[4294967296];", 4 * GIB),
        (".global .u32 a;", GRANULE),
        (".global .u32 a, b[1000], c;", 2 * GRANULE + 4 * KIB),
        (".global .v4 .f32 a[1000];", 16 * KIB),
        (".global .align 8 .b64 a[0x10][020][0b11];", 8 * 16 * 16 * 3),
        (".global .f16x2 a[256U];", KIB),
        (".visible.global.b8 a[1024];", KIB),
        (".global .attribute(.managed) .b8 a[1024];", KIB),
        (".global .attribute(.unified(1, 2)) .b8 a[1024];", KIB),
        (".const .b8 a[1024];", KIB),
        (".global .u32 a[] = {1, 2, 3};", GRANULE),
        (".global .u64 a[] = {" + ", ".join(["generic(x)"] * 1000) + "}, b;", 8192 + GRANULE),
        (".global .u64 a[][2] = {{1, 2}, {3, 4}};", GRANULE),
        (".global .f32 a = 0f3F800000; .global .b8 b[513];", 3 * GRANULE),
        (".common .global .b8 a[1024];", KIB),
        (".weak .const .align 4096 .b8 a[1];", 4 * KIB),
        (".global .texref a;", GRANULE),
        ("/* .global .b8 a[1024]; */ // .global .b8 a[1024];", 0),
        (".extern .global .b8 a[1024]; .global .b8 b[1024];", KIB),
        (".extern .func f (.param .b64 p) ; .global .b8 b[1024];", KIB),
        (".visible .entry e(.param .u64 .ptr .global .align 16 p) { ld.global.u32 %r, [p]; }", 0),
        (kernel("e", body=".shared .b8 a[1024]; .local .b8 b[1024]; st.global.b8 [x], 1;"), 0),
        (kernel("e", body=".global .b8 a[1024];"), KIB),
        ('.file 1 "a;.global .b8 b[1024];"', 0),
        (".global .b8 a[1099511627776]; .global .b8 b[18446744073709551615];", CEILING),
        (".global .b64 a[4611686018427387904];", CEILING),
    ],
)
def test_variables_of_ptx_are_added_up(read: Reader, declaration: str, expected: int) -> None:
    assert read(ptx(declaration)) == [(expected, True)]


@pytest.mark.parametrize(
    "declaration",
    [".global .b8 a[4 * 1024];", ".global .b8 a[N];", ".global .newtype a;", ".global .b8",
     ".global a[4];", ".global .b8 a[4] {};", ".global .b8 a = {1"],
)  # fmt: skip
def test_a_declaration_that_is_not_understood_makes_it_unknown(
    read: Reader, declaration: str
) -> None:
    assert [known for _, known in read(ptx(declaration))] == [False]


def _sections(flags: int, *sections: tuple[str, int | None]) -> bytes:
    """A cubin of such sections (a name, the bytes it takes without having them or None)."""
    image = Cubin(90)
    for name, size in sections:
        image.section(name, bytes(0 if size else 8 * KIB), size)
    raw = bytearray(image.build())
    (start,) = struct.unpack_from("<Q", raw, 40)
    for number in range(1, len(sections) + 1):
        struct.pack_into("<Q", raw, start + 64 * number + 8, flags)
    return bytes(raw)


def test_sections_and_symbols_of_a_cubin_are_added_up(read: Reader) -> None:
    alone = Cubin(90)
    alone.section(".nv.global", size=GIB)
    larger = Cubin(90)
    section = larger.section(".nv.global", size=8)
    larger.symbol("hidden", STT_OBJECT, section, 2 * GIB)
    larger.symbol("elsewhere", STT_OBJECT, 0, 4 * GIB)
    relocatable = Cubin(90)
    relocatable.symbol("common", STT_OBJECT, 0xFFF2, MIB)

    assert read(cubin(), alone.build(), larger.build(), relocatable.build()) == [
        (4 * MIB + GRANULE, True),
        (GIB, True),
        (2 * GIB, True),
        (MIB, True),
    ]


def test_allocated_sections_without_bytes_are_variables_and_others_code(read: Reader) -> None:
    allocated = _sections(2, (".bss", GIB), (".nv.shared.work", MIB), (".text.work", None))

    assert read.all(allocated) == [(GIB, 8 * KIB, True)]


def test_more_sections_than_the_header_can_count(read: Reader) -> None:
    raw = bytearray(cubin())
    (start,) = struct.unpack_from("<Q", raw, 40)
    count, names = struct.unpack_from("<HH", raw, 60)
    struct.pack_into("<HH", raw, 60, 0, 0xFFFF)
    struct.pack_into("<Q", raw, start + 32, count)
    struct.pack_into("<I", raw, start + 40, names)

    assert read(bytes(raw)) == [(4 * MIB + GRANULE, True)]


def _text(size: int) -> bytes:
    return ptx(f".global .b8 a[{size}];")


def _elf(architecture: int, size: int) -> tuple[int, int, bytes]:
    image = Cubin(architecture)
    image.section(".nv.global", size=size)
    return ELF_KIND, architecture, image.build()


def test_of_a_bundle_the_images_count_that_the_gpu_could_run(read: Reader) -> None:
    bundle = fatbin(
        (PTX_KIND, 50, _text(32 * MIB)),
        _elf(80, 64 * MIB),
        _elf(86, 2 * MIB),
        (PTX_KIND, 75, _text(MIB)),
        _elf(90, 4 * MIB),
        (PTX_KIND, 90, _text(8 * MIB)),
        _elf(100, 16 * MIB),
        (LTO_KIND, 90, bytes(64)),
    )

    for architecture, expected in ((90, 8), (89, 2), (80, 64), (75, 1), (70, 32), (100, 16)):
        assert read(bundle, architecture=architecture) == [(expected * MIB, True)], architecture


def test_a_payload_may_be_packed_or_damaged(read: Reader) -> None:
    image = ptx(".global .b8 a[1048576];" + "x" * 300 + " // no repetition" * 30)
    packed = fatbin((PTX_KIND, 90, image), flags=LZ4)
    zstd = fatbin((PTX_KIND, 90, image), flags=ZSTD)
    other = fatbin((LTO_KIND, 90, image))

    sizes = read(
        packed, packed[:80] + b"\x0f" + packed[81:], zstd, other, packed[:100], b"x", b"\0"
    )

    assert sizes[0] == (MIB, True)
    assert [known for _, known in sizes[1:]] == [False] * 6


def _packed(level: int) -> bytes:
    """A bundle of `_long_text`, packed by the zstd command with that level."""
    frame = (ROOT / f"tests/native/packed/text-{level}.zst").read_bytes()
    bundle = bytearray(fatbin((PTX_KIND, 90, frame), flags=ZSTD))
    struct.pack_into("<Q", bundle, 16 + 56, len(_long_text()[0]))
    return bytes(bundle)


def _long_text() -> tuple[bytes, int]:
    """A text of two blocks of zstd, and what its variables take."""
    sizes = [i * 7919 % 31 * 40 + 1 for i in range(2900)]
    text = "".join(
        f".visible .global .align {4 << i % 3} .b8 v{i % 13}_{i % 7}[{size}]; // {'x' * (i % 7)}\n"
        for i, size in enumerate(sizes)
    )
    return ptx(text), sum(-(-size // GRANULE) * GRANULE for size in sizes)


@pytest.mark.parametrize("level", [1, 19])
def test_a_payload_may_be_packed_with_zstd(read: Reader, level: int) -> None:
    text, expected = _long_text()

    bundle = _packed(level)
    magic, short = bytearray(bundle), bytearray(bundle)
    magic[16 + 64] ^= 0xFF
    struct.pack_into("<I", short, 16 + 16, struct.unpack_from("<I", bundle, 16 + 16)[0] - 9)

    assert read(text, bundle) == 2 * [(expected, True)]
    assert [known for _, known in read(bytes(magic), bytes(short))] == [False, False]


def test_packed_ptx_beside_machine_code_matters_only_where_it_is_preferred(
    read: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, text = _elf(90, MIB), (PTX_KIND, 90, _text(MIB))

    def bundle(code: tuple[int, int, bytes], packed: tuple[int, int, bytes]) -> bytes:
        one, other = fatbin(code), fatbin(packed, flags=ZSTD)
        return one[:8] + struct.pack("<Q", len(one) + len(other) - 32) + one[16:] + other[16:]

    mixed = bundle(plain, text), bundle(text, plain)
    assert read(*mixed) == [(MIB, True), (MIB, False)]
    monkeypatch.setenv("CUDA_FORCE_PTX_JIT", "1")
    assert read(*mixed) == [(MIB, False), (MIB, False)]


def test_damaged_images_never_make_the_reader_fault(
    compile_program: Compile, tmp_path: Path
) -> None:
    program = compile_program("image_size.c", *SOURCES, flags=SANITIZERS)
    text = ptx(
        ".visible .global .align 4 .v2 .b8 x[4][5] = {1, 2}, y[]; // a\n/* b */"
        + kernel("one", ".maxntid 1, 2, 3", '.shared .b8 own[8]; ret; "')
    )
    images = [
        text,
        cubin(),
        fatbin((PTX_KIND, 90, text), (ELF_KIND, 90, cubin()), _elf(80, MIB)),
        fatbin((PTX_KIND, 90, text + bytes(100)), (ELF_KIND, 90, cubin()), flags=LZ4),
        _packed(1),
        _packed(19),
    ]
    paths = []
    for number, image in enumerate(images):
        paths.append(tmp_path / str(number))
        paths[-1].write_bytes(image)

    done = subprocess.run(
        [program, "fuzz", "7", str(FUZZED), *paths],
        check=False,
        text=True,
        capture_output=True,
        timeout=300,
    )

    assert done.returncode == 0, done.stderr
    known, unknown = map(int, done.stdout.split())
    assert known + unknown == 2 * FUZZED
    assert known > FUZZED // 20 and unknown > FUZZED // 20  # the damage reaches both
