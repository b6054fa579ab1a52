"""The bound of an array's size is never below what the simulated driver takes, and not absurd."""

import random
from collections.abc import Iterable

from support import Compile
from support.ended import printed

LAYERED, CUBEMAP = 1, 4
ELEMENT_BYTES = {0x01: 1, 0x08: 1, 0x02: 2, 0x09: 2, 0x10: 2, 0x03: 4, 0x0A: 4, 0x20: 4}
UNKNOWN_FORMAT = 0x91
U64_MAX = (1 << 64) - 1
FORM_COUNT = 3000
ROUNDED = 512

Form = tuple[int, int, int, int, int, int, int]


def bounds(compile_program: Compile, forms: Iterable[Form]) -> list[int]:
    program = compile_program("array_size.c", "libvgpu/src/memory/ledger/array_size.c")
    text = "\n".join(" ".join(map(str, form)) for form in forms)
    return [int(line) for line in printed(program, told=text).split()]


def up(value: int, step: int) -> int:
    return -(-value // step) * step


def taken(form: Form) -> int:
    """What the simulated driver takes for it, by the rule in its README."""
    width, height, depth, kind, channels, flags, levels = form
    layered = flags & (LAYERED | CUBEMAP)
    total = 0
    for level in range(max(1, levels)):
        w, h, d = (max(1, x >> level) if x else 0 for x in (width, height, depth))
        rows = up(h, 8) if h > 1 else 1
        slices = (depth if layered else d) or 1
        total += up(w * ELEMENT_BYTES[kind] * channels, 64) * rows * slices
    return up(total, ROUNDED)


def random_form(dice: random.Random) -> Form:
    width, height, depth = (int(2 ** dice.uniform(0, 14)) for _ in range(3))
    flags = dice.choice([0, 0, LAYERED])
    height = dice.choice([0, 1, height, height])
    depth = dice.choice([0, depth >> 4]) if height or flags else 0
    largest = max(width, height, 0 if flags else depth)
    return (
        width,
        height,
        depth,
        dice.choice(list(ELEMENT_BYTES)),
        dice.choice([1, 2, 4]),
        flags,
        dice.randint(0, largest.bit_length()),
    )


def test_the_bound_covers_every_array_that_the_simulated_driver_makes(
    compile_program: Compile,
) -> None:
    dice = random.Random(10)
    forms = [random_form(dice) for _ in range(FORM_COUNT)]

    found = bounds(compile_program, forms)

    assert [form for form, bytes in zip(forms, found, strict=True) if bytes < taken(form)] == []
    large = [(f, b) for f, b in zip(forms, found, strict=True) if f[6] < 2 and min(f[:2]) > 2048]
    assert large and all(bytes < 1.1 * taken(form) for form, bytes in large if form[2] == 0)


def test_the_bound_of_some_arrays(compile_program: Compile) -> None:
    byte, half, kib = 0x01, 0x10, 1 << 10
    assert bounds(
        compile_program,
        [
            (4096, 4096, 0, byte, 1, 0, 0),
            (4096, 4096, 0, half, 4, 0, 0),
            (64, 128, 6, byte, 1, CUBEMAP, 0),
            (64, 8, 3, byte, 1, 0, 0),  # three slices lie in blocks of four
            (64, 8, 3, byte, 1, LAYERED, 0),
            (64, 8, 0, UNKNOWN_FORMAT, 1, 0, 0),  # the largest elements there are
            (64, 64, 0, byte, 1, 0, 99),  # 4096 + 2048 + 1024 + 4 * 512
        ],
    ) == [16384 * kib, 131072 * kib, 48 * kib, 2 * kib, 3 * 512, 8 * kib, 4096 + 2048 + 6 * 512]


def test_the_bound_of_what_no_number_can_tell_is_the_largest(compile_program: Compile) -> None:
    huge = [
        (U64_MAX, 1, 1, 1, 1, 0, 0),
        (1 << 40, 1 << 40, 1, 1, 1, 0, 0),
        (1, U64_MAX, 0, 1, 1, 0, 0),
        (1, 1, U64_MAX, 1, 1, 0, 1),
        (1 << 62, 1, 1, 1, 4, 0, 64),
        (1, 1, U64_MAX, 1, 1, LAYERED, 0),
    ]

    assert bounds(compile_program, huge) == [U64_MAX] * len(huge)
