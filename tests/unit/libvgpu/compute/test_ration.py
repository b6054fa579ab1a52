"""When a launch whose price is known is measured again."""

import math
import random
import statistics
from typing import Any

import pytest

from libvgpu._native import ffi, lib

START_NS = 5_000_000_000
KERNEL_NS = 5000
SAMPLES = 2000


@pytest.fixture
def ration() -> Any:
    made = ffi.new("struct ration *")
    lib.ration_begin(made, 0, lib.RATION_GPU_NS, START_NS)
    return made


def test_the_first_launch_of_all_is_measured() -> None:
    assert lib.ration_is_due(ffi.new("struct ration *"), KERNEL_NS, START_NS)


def test_the_launch_that_goes_beyond_what_is_due_is_the_sample(ration: Any) -> None:
    late_ns = START_NS + 60_000_000_000
    left_ns = ration.due_ns

    lib.ration_charge(ration, left_ns - KERNEL_NS, late_ns)
    assert not lib.ration_is_due(ration, KERNEL_NS, late_ns)
    assert lib.ration_is_due(ration, KERNEL_NS + 1, late_ns)


def test_one_that_is_hurried_is_due_soon_but_not_at_once(ration: Any) -> None:
    lib.ration_hurry(ration)

    assert not lib.ration_is_due(ration, KERNEL_NS, START_NS + lib.RATION_HURRY_NS - 1)
    assert lib.ration_is_due(ration, KERNEL_NS, START_NS + lib.RATION_HURRY_NS)


def test_what_is_hurried_is_given_out_a_little_at_a_time(ration: Any) -> None:
    """Nobody looks at the clock before what is left has been charged."""
    lib.ration_hurry(ration)
    lib.ration_charge(ration, lib.RATION_GPU_NS, START_NS)

    assert 0 < lib.ration_left_ns(ration) <= lib.RATION_HURRY_NS / 2


@pytest.mark.parametrize("start_ns", [START_NS, 1, 0, START_NS + 1])
@pytest.mark.parametrize("mean_ns", [lib.RATION_GPU_NS, lib.RATION_NEAR_GPU_NS])
def test_the_amount_says_nothing_of_how_much_of_it_is_left(mean_ns: int, start_ns: int) -> None:
    """That is: it is distributed exponentially."""
    ration = ffi.new("struct ration *")
    amounts = []
    for number in range(10 * SAMPLES):
        lib.ration_begin(ration, 0, mean_ns, start_ns + number)
        amounts.append(ration.due_ns)

    assert statistics.fmean(amounts) == pytest.approx(mean_ns, rel=0.03)
    for part in (0.01, 0.1, 0.5, 1.0, 2.0, 3.0):
        beyond = sum(amount > part * mean_ns for amount in amounts) / len(amounts)
        assert beyond == pytest.approx(math.exp(-part), abs=0.012), part


def booked_to_true(launches: list[int], start_ns: int) -> float:
    """Returns the part of what launches take that is charged, with prices that follow samples."""
    ration = ffi.new("struct ration *")
    price_ns, now_ns, booked_ns = float(launches[0]), start_ns, 0
    lib.ration_begin(ration, 0, lib.RATION_NEAR_GPU_NS, now_ns)
    for truth_ns in launches:
        now_ns += 600_000
        price = int(price_ns)
        if not lib.ration_is_due(ration, price, now_ns):
            lib.ration_charge(ration, price, now_ns)
            booked_ns += price
            continue
        speaks_ns = lib.ration_begin(ration, price, lib.RATION_NEAR_GPU_NS, now_ns)
        booked_ns += truth_ns + lib.ration_owed_ns(speaks_ns, price, truth_ns)
        price_ns += (truth_ns - price_ns) / 4
    return booked_ns / sum(launches)


CHANCE = random.Random(1)
LENGTHS = {
    "all alike": [20_000] * 200_000,
    "ten times as long by chance": [CHANCE.choice((10_000, 100_000)) for _ in range(200_000)],
    "ten times as long in turn": [10_000, 100_000] * 100_000,
    "for some time": [(20_000, 200_000)[number // 100 % 2] for number in range(200_000)],
    "for long": [(20_000, 200_000)[number // 5000 % 2] for number in range(200_000)],
    "ever longer": [10_000 + number // 2 for number in range(200_000)],
    "short ones behind a long one": ([100_000] + [10_000] * 19) * 10_000,
}


@pytest.mark.parametrize("lengths", LENGTHS)
def test_what_samples_say_makes_the_sum_right_whatever_becomes_of_lengths(lengths: str) -> None:
    parts = [booked_to_true(LENGTHS[lengths], START_NS + 7919 * chance) for chance in range(4)]

    assert statistics.fmean(parts) == pytest.approx(1, abs=0.02)


def test_a_sample_speaks_for_what_could_not_be_measured(ration: Any) -> None:
    late_ns = START_NS + 60_000_000_000
    lib.ration_leave(ration, 700)
    lib.ration_charge(ration, ration.due_ns + 300, late_ns)  # a second sample came too soon
    lib.ration_hurry(ration)

    assert lib.ration_begin(ration, 0, lib.RATION_GPU_NS, late_ns) == 1000
    assert lib.ration_begin(ration, 0, lib.RATION_GPU_NS, late_ns) == 0


def test_one_that_was_hurried_speaks_for_what_came_since(ration: Any) -> None:
    lib.ration_charge(ration, 1, START_NS)
    lib.ration_hurry(ration)
    lib.ration_charge(ration, 500, START_NS)

    assert lib.ration_begin(ration, KERNEL_NS, lib.RATION_GPU_NS, START_NS) == 500


@pytest.mark.parametrize(
    ("took_ns", "owed_ns"),
    [(9000, 10_000), (6000, -20_000), (0, -80_000), (8_000_000_000, lib.RATION_MOST_OWED_NS)],
)
def test_what_is_owed_is_in_proportion_and_bounded(took_ns: int, owed_ns: int) -> None:
    assert lib.ration_owed_ns(80_000, 8000, took_ns) == owed_ns


@pytest.mark.parametrize("kinds", [2, 8, 10, 400])
def test_of_kinds_in_turn_each_is_sampled_by_its_gpu_time(kinds: int) -> None:
    """One that came round with a fixed amount would always be the one that reaches it, or never."""
    ration = ffi.new("struct ration *")
    lengths = [KERNEL_NS * (1 + 3 * (kind % 2)) for kind in range(kinds)]
    now_ns, sampled = START_NS, [0] * kinds
    number = 0
    while sum(sampled) < SAMPLES:
        kind = number % kinds
        number += 1
        now_ns += 600_000
        if lib.ration_is_due(ration, lengths[kind], now_ns):
            lib.ration_begin(ration, lengths[kind], lib.RATION_GPU_NS, now_ns)
            sampled[kind] += 1
        else:
            lib.ration_charge(ration, lengths[kind], now_ns)

    assert sum(sampled[1::2]) / SAMPLES == pytest.approx(4 / 5, abs=0.04)
    assert min(sampled[1::2]) > SAMPLES / kinds / 10


def test_the_backlog_is_what_the_gpu_has_not_had_time_for(ration: Any) -> None:
    lib.ration_charge(ration, 300, START_NS)
    lib.ration_charge(ration, 500, START_NS + 100)

    assert lib.ration_backlog_ns(ration, START_NS + 100) == 700
    assert lib.ration_backlog_ns(ration, START_NS + 799) == 1
    assert lib.ration_backlog_ns(ration, START_NS + 900) == 0

    lib.ration_charge(ration, 40, START_NS + 1000)  # it begins when it comes
    assert lib.ration_backlog_ns(ration, START_NS + 1000) == 40


def test_a_measurement_leaves_the_backlog_as_it_is(ration: Any) -> None:
    lib.ration_charge(ration, 500, START_NS)
    lib.ration_begin(ration, 0, lib.RATION_GPU_NS, START_NS)

    assert lib.ration_backlog_ns(ration, START_NS) == 500
    assert not lib.ration_is_due(ration, 0, START_NS + 1_000_000_000)
