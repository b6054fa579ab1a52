"""The table of prices by kind of launch."""

import pytest

from support import Compile
from support.ended import printed

KEYS = 1024
KNOWN_AFTER = 3
LENGTH_NS = 7000
NO_PRICE = 1 << 30


def ask(compile_program: Compile, *words: object) -> list[int]:
    program = compile_program(
        "estimate_table.c",
        "libvgpu/src/compute/measure/estimate.c",
        flags=("-fsanitize=address,undefined",),
    )
    return [int(word) for word in printed(program, *map(str, words)).split()]


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
    ("samples", "is_uneven"),
    [
        pytest.param([20_000] * 10, False, id="even"),
        pytest.param([20_000, 20_000, 20_000, 35_000], False, id="less than twice as long"),
        pytest.param([20_000] * 3 + [45_000, 60_000], True, id="more than twice as long, twice"),
        pytest.param([90_000] * 3 + [40_000, 30_000], True, id="less than half as long, twice"),
        pytest.param([20_000] * 3 + [45_000], False, id="once"),
        pytest.param([20_000, 90_000, 20_000], False, id="not known yet"),
        pytest.param([5_000] * 3 + [15_000, 20_000], False, id="too short to be measured always"),
        pytest.param([20_000] * 3 + [45_000, 60_000] + [36_000] * 99, True, id="remembered"),
        pytest.param([20_000] * 3 + [45_000, 60_000] + [36_000] * 100, False, id="forgotten"),
        pytest.param([20_000] * 3 + [45_000] + [26_000] * 99 + [60_000], True, id="now and then"),
    ],
)
def test_a_kind_whose_lengths_differ_by_much_is_uneven_for_some_time(
    compile_program: Compile, samples: list[int], is_uneven: bool
) -> None:
    told, _ = ask(compile_program, "uneven", *samples)

    assert told == is_uneven


@pytest.mark.parametrize(
    ("samples", "is_prepaid"),
    [
        pytest.param([20_000] * 3 + [45_000, 60_000], False, id="uneven"),
        pytest.param([20_000] * 3 + [45_000], True, id="once"),
        pytest.param([5_000] * 3 + [15_000, 20_000], True, id="too short"),
        pytest.param([200_000] * 10, True, id="even and long"),
    ],
)
def test_launches_of_an_uneven_kind_are_never_prepaid(
    compile_program: Compile, samples: list[int], is_prepaid: bool
) -> None:
    _, budget_price_ns = ask(compile_program, "uneven", *samples)

    assert (budget_price_ns != NO_PRICE) == is_prepaid


def test_a_full_table_replaces_and_never_gives_another_ones_price(compile_program: Compile) -> None:
    missing, wrong, left = ask(compile_program, "full")

    assert (missing, wrong) == (0, 0)
    assert 0.95 * KEYS < left <= KEYS


def test_look_ups_without_a_lock_see_whole_prices(compile_program: Compile) -> None:
    looked, wrong = ask(compile_program, "threads")

    assert looked > 1000
    assert wrong == 0
