"""The table of prices by kind of launch."""

import subprocess

import pytest

from support import Compile

KEYS = 1024
KNOWN_AFTER = 3
LENGTH_NS = 7000
NO_PRICE = 1 << 30


def ask(compile_program: Compile, *words: object) -> list[int]:
    program = compile_program(
        "estimate_table.c",
        "libvgpu/src/compute/estimate.c",
        flags=("-fsanitize=address,undefined",),
    )
    done = subprocess.run([program, *map(str, words)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return [int(word) for word in done.stdout.split()]


@pytest.mark.parametrize(
    ("one", "other", "is_shared"),
    [
        (1, 1, True),
        (1, 2, False),
        (2, 3, False),
        (8, 9, False),
        (7, 8, False),
        (16, 17, True),
        (16, 18, False),
        (1024, 1151, True),
        (1024, 1152, False),
        (1023, 1024, False),
        (132, 264, False),
        (1 << 31, (1 << 31) + 1000, True),
        (1 << 40, 1 << 41, False),
    ],
)
def test_grids_that_differ_by_less_than_an_eighth_may_be_one_kind(
    compile_program: Compile, one: int, other: int, is_shared: bool
) -> None:
    assert ask(compile_program, "counts", one, other) == [is_shared]


def test_no_functions_share_a_key_whatever_their_grids(compile_program: Compile) -> None:
    assert ask(compile_program, "functions") == [0, 0]


def test_a_price_is_not_prepaid_before_it_is_known(compile_program: Compile) -> None:
    told = ask(compile_program, "known")

    assert told[0::2] == [NO_PRICE] * KNOWN_AFTER + [LENGTH_NS] * (len(told) // 2 - KNOWN_AFTER)
    assert told[1::2] == [1, 2, 4, 8, 16, 32]


@pytest.mark.parametrize(
    ("samples", "prices"),
    [
        ([9, 8, 7], [9, 8, 7]),  # new
        ([9, 8, 7, 20, 30, 40, 50, 60], [9, 8, 7, 7, 7, 7, 7, 30]),  # of four the least
        ([9, 8, 7, 20, 5], [9, 8, 7, 7, 5]),  # what is lower counts at once
        ([9, 8, 7, 20, 5, 30, 30, 30, 40], [9, 8, 7, 7, 5, 5, 5, 5, 30]),  # and begins four again
    ],
)
def test_of_samples_next_to_others_the_least_counts(
    compile_program: Compile, samples: list[int], prices: list[int]
) -> None:
    assert ask(compile_program, "shared", *samples) == prices


@pytest.mark.parametrize(
    ("steps", "owed"),
    [
        pytest.param("l8000 c10 s9000", 10 * 1000, id="too little"),
        pytest.param("l8000 c10 s6000", -10 * 2000, id="too much"),
        pytest.param("l8000 c10 s0", -10 * 8000, id="no less than nothing"),
        pytest.param("l8000 c10 s8000000000", 20_000_000, id="no more than 20 ms"),
        pytest.param("l8000 c10 s9000 s9000", 10 * 1000, id="once"),
        # Charged 10 times 8000, 10 times 10000, 10 times 12000, and all of them took 9000.
        pytest.param("l8000 c10 l16000 c10 l18000 c10 s9000", -10 * 3000, id="prices that moved"),
        pytest.param("l8000 c10 r16000 c10 s9000", -10 * 7000, id="bounds are not counted up"),
    ],
)
def test_a_sample_speaks_for_all_that_were_charged_since_the_one_before(
    compile_program: Compile, steps: str, owed: int
) -> None:
    *_, charged_ns, owed_ns = ask(compile_program, "settle", *steps.split())

    assert charged_ns > 0
    assert owed_ns == pytest.approx(owed, rel=1e-6)


def test_many_samples_make_charges_right_whatever_the_prices(compile_program: Compile) -> None:
    """A kind is 10 or 67 us long, and what is measured without being a sample is the long ones."""
    lengths = [10_000, 67_000] * 50
    steps = ["l67000", *(f"c20 l67000 c20 s{length}" for length in lengths)]

    *_, charged_ns, owed_ns = ask(compile_program, "settle", *" ".join(steps).split())

    assert charged_ns + owed_ns == pytest.approx(40 * sum(lengths), rel=1e-5)


def test_a_full_table_replaces_and_never_gives_another_ones_price(
    compile_program: Compile,
) -> None:
    missing, wrong, left = ask(compile_program, "full")

    assert (missing, wrong) == (0, 0)
    assert 0.95 * KEYS < left <= KEYS


def test_look_ups_without_a_lock_see_whole_prices(compile_program: Compile) -> None:
    looked, wrong = ask(compile_program, "threads")

    assert looked > 1000
    assert wrong == 0
