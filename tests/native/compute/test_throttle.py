"""What the throttle's parts are for, each by a figure that is off without it. Simulated time."""

import statistics

import pytest

from support import Compile
from support.shim.throttle_model import run_case

US = 1000
CHANGE_PART_NS = 50 * US  # of a change of processes, which who waited for its cap pays
LAUNCHES_PER_PAIR = 50
CHANCE_NS = 7  # longer: other launches are samples then


@pytest.mark.parametrize(
    ("percent", "kernel_ns", "in_a_row", "pause_ns"),
    [(90, 2 * US, 1, 20 * US), (90, 2 * US, 2, 20 * US), (90, 5 * US, 4, 20 * US),
     (99, 2 * US, 3, 10 * US)],
)  # fmt: skip
def test_launches_behind_others_are_booked_for_what_they_take(
    compile_program: Compile, percent: int, kernel_ns: int, in_a_row: int, pause_ns: int
) -> None:
    """The GPU is through with the launch before while the next one is on its way."""
    parts = []
    for similar_ns in range(kernel_ns, kernel_ns + 8 * CHANCE_NS, CHANCE_NS):
        seen = run_case(compile_program, "paced", percent, similar_ns, in_a_row, pause_ns)
        assert 0 < seen.records <= 2 * seen.launches / LAUNCHES_PER_PAIR
        parts.append(seen.booked_ns / seen.busy_ns)

    assert statistics.fmean(parts) == pytest.approx(1, abs=0.01)
    assert parts == pytest.approx([1] * len(parts), abs=0.04)


@pytest.mark.parametrize(("percent", "kernel_ns"), [(30, 100 * US), (30, 20 * US), (60, 100 * US)])
def test_next_to_others_each_burst_pays_for_a_part_of_its_change(
    compile_program: Compile, percent: int, kernel_ns: int
) -> None:
    seen = run_case(compile_program, "shared", percent, kernel_ns)

    paid_ns = seen.busy_ns + seen.rounds * CHANGE_PART_NS
    assert paid_ns == pytest.approx(seen.passed_ns * percent / 100, rel=0.002)
    assert 0.05 * paid_ns < seen.rounds * CHANGE_PART_NS


@pytest.mark.parametrize("percent", [30, 60])
def test_next_to_others_a_burst_is_as_long_as_one_alone(
    compile_program: Compile, percent: int
) -> None:
    """Each one makes the GPU change processes twice."""
    seen = run_case(compile_program, "shared", percent, 20 * US)

    burst_ns = seen.busy_ns / seen.rounds * 100 / percent
    assert burst_ns > 800 * US
