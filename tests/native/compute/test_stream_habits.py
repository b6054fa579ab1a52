"""Programs with a stream a request: made, launched on, waited for or not, and destroyed.

Over simulated time, where a stream that has ended ends whoever uses it.
"""

import statistics

import pytest

from support import IS_LONG, Compile
from support.shim.throttle_model import Seen, run_case

US = 1000
LAUNCHES_PER_PAIR = 50
LONGEST_NS = 200 * US
#: Which launches are samples is another chance with each: right on average is what is asked.
SIMILAR_NS = range(20 * US, 20 * US + 140, 7 if IS_LONG else 14)


def run(compile_program: Compile, percent: int, *numbers: int) -> Seen:
    return run_case(compile_program, "stream-each", percent, *numbers)


@pytest.mark.parametrize("is_waited_for", [0, 1], ids=["left behind", "waited for"])
@pytest.mark.parametrize("open_at_a_time", [1, 4, 16])
@pytest.mark.parametrize("kernel_ns", [5 * US, 20 * US])
@pytest.mark.parametrize("percent", [30, 90])
def test_few_launches_are_measured_and_the_books_are_right(
    compile_program: Compile,
    percent: int,
    kernel_ns: int,
    open_at_a_time: int,
    is_waited_for: int,
) -> None:
    numbers = (kernel_ns, is_waited_for, open_at_a_time, kernel_ns)

    seen = run(compile_program, percent, *numbers)

    assert 0 < seen.records <= 2 * seen.launches / LAUNCHES_PER_PAIR
    assert seen.booked_ns == pytest.approx(seen.busy_ns, rel=0.003)
    if is_waited_for and percent == 90:  # the host's part of each launch is more than a tenth
        assert seen.sleeps == 0
    else:
        assert seen.share == pytest.approx(percent, abs=0.3)


@pytest.mark.parametrize("is_waited_for", [0, 1], ids=["left behind", "waited for"])
@pytest.mark.parametrize("open_at_a_time", [1, 16])
@pytest.mark.parametrize("later_ns", [2 * US, 30 * US, LONGEST_NS])
def test_a_kind_that_changes_is_held_to_the_cap(
    compile_program: Compile, later_ns: int, open_at_a_time: int, is_waited_for: int
) -> None:
    """Prices that have proved wrong have all launches measured for a while."""
    shares = []
    for kernel_ns in SIMILAR_NS:
        seen = run(compile_program, 30, kernel_ns, is_waited_for, open_at_a_time, later_ns)
        assert seen.booked_ns == pytest.approx(seen.passed_ns * 0.3, rel=0.08)
        shares.append(seen.share)

    assert 28 < statistics.fmean(shares) < 30.3
    assert max(shares) < 36


@pytest.mark.parametrize("open_at_a_time", [1, 4, 16])
def test_after_a_wrong_price_all_launches_are_measured_for_a_while(
    compile_program: Compile, open_at_a_time: int
) -> None:
    """Samples alone follow longer kernels too slowly, and what was not used is paid for."""
    shares = [
        run(compile_program, 90, kernel_ns, 0, open_at_a_time, 30 * US).share
        for kernel_ns in SIMILAR_NS
    ]

    assert min(shares) > 85
    assert max(shares) < 90.3
