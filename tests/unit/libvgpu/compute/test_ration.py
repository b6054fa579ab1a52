"""When a launch whose price is known is measured again."""

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
    lib.ration_begin(made, lib.RATION_GPU_NS, START_NS)
    return made


def test_the_first_launch_of_all_is_measured() -> None:
    assert lib.ration_is_due(ffi.new("struct ration *"), START_NS)


def test_nothing_is_due_before_its_gpu_time_was_charged(ration: Any) -> None:
    late_ns = START_NS + 60_000_000_000
    left_ns = lib.ration_left_ns(ration)

    lib.ration_charge(ration, left_ns - 1, late_ns)
    assert not lib.ration_is_due(ration, late_ns)
    lib.ration_charge(ration, 1, late_ns)
    assert lib.ration_is_due(ration, late_ns)


def test_nothing_is_due_too_soon_whatever_was_charged(ration: Any) -> None:
    lib.ration_charge(ration, 100 * lib.RATION_GPU_NS, START_NS)

    assert not lib.ration_is_due(ration, START_NS + lib.RATION_LEAST_NS - 1)
    assert lib.ration_is_due(ration, START_NS + lib.RATION_LEAST_NS)


def test_what_is_due_too_soon_is_given_out_a_little_at_a_time(ration: Any) -> None:
    """Nobody looks at the clock before what is left has been charged."""
    lib.ration_charge(ration, 100 * lib.RATION_GPU_NS, START_NS)

    assert 0 < lib.ration_left_ns(ration) <= lib.RATION_LEAST_NS / 2


@pytest.mark.parametrize("start_ns", [START_NS, 1, 0, START_NS + 1])
@pytest.mark.parametrize("gpu_ns", [lib.RATION_GPU_NS, lib.RATION_NEAR_GPU_NS])
def test_the_amount_is_half_to_one_and_a_half_and_varies_evenly(gpu_ns: int, start_ns: int) -> None:
    ration = ffi.new("struct ration *")
    amounts = []
    for number in range(SAMPLES):
        lib.ration_begin(ration, gpu_ns, start_ns + number)
        amounts.append(ration.due_ns)

    assert min(amounts) >= gpu_ns / 2
    assert max(amounts) < gpu_ns * 3 / 2
    assert statistics.fmean(amounts) == pytest.approx(gpu_ns, rel=0.03)
    quarters = [sum(int(4 * (a - gpu_ns / 2) / gpu_ns) == q for a in amounts) for q in range(4)]
    assert quarters == pytest.approx([SAMPLES / 4] * 4, rel=0.2)


@pytest.mark.parametrize("kinds", [2, 8, 10, 400])
def test_of_kinds_in_turn_each_reaches_the_ration_by_its_gpu_time(kinds: int) -> None:
    """One that came round with a fixed amount would always be the one that reaches it, or never."""
    ration = ffi.new("struct ration *")
    lengths = [KERNEL_NS * (1 + 3 * (kind % 2)) for kind in range(kinds)]
    now_ns, sampled = START_NS, [0] * kinds
    number = 0
    while sum(sampled) < SAMPLES:
        kind = number % kinds
        number += 1
        now_ns += 15_000
        lib.ration_charge(ration, lengths[kind], now_ns)
        if lib.ration_is_due(ration, now_ns):
            lib.ration_begin(ration, lib.RATION_GPU_NS, now_ns)
            sampled[kind] += 1

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
    lib.ration_begin(ration, lib.RATION_GPU_NS, START_NS)

    assert lib.ration_backlog_ns(ration, START_NS) == 500
    assert not lib.ration_is_due(ration, START_NS + 1_000_000_000)
