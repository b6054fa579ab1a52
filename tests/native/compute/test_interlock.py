"""Launches that wait on the GPU for what is launched next: nothing may hold both for long.

Over simulated time. A round is one launch that waits and the one that lets it go; how many a
program makes in a second is compared with what it makes without the shim.
"""

import functools

import pytest

from support import Compile
from support.shim.throttle_model import Seen, run_case

KERNEL_NS = 20_000
MS = 1_000_000
#: Far more than one round each 50 ms: 0.002 at most.
LEAST_KEPT = 0.1


@functools.cache
def run_bare(compile_program: Compile, name: str, *numbers: int) -> Seen:
    return run_case(compile_program, name, 0, KERNEL_NS, *numbers)


def run(compile_program: Compile, name: str, percent: int, *numbers: int) -> tuple[float, Seen]:
    """Returns what it keeps of the rounds that its cap leaves it, and what was seen."""
    bare = run_bare(compile_program, name, *numbers)
    seen = run_case(compile_program, name, percent, KERNEL_NS, *numbers)
    rates = [each.rounds / each.passed_ns for each in (seen, bare)]
    return rates[0] / (rates[1] * percent / 100), seen


@pytest.mark.parametrize("is_one_kind", [0, 1], ids=["two kinds", "one kind"])
@pytest.mark.parametrize("percent", [90, 50, 30])
def test_a_stream_that_waits_for_a_value_is_not_held_up(
    compile_program: Compile, percent: int, is_one_kind: int
) -> None:
    kept, seen = run(compile_program, "wait-for-next", percent, is_one_kind, 1)

    assert kept > 0.9
    assert seen.longest_ns < 20 * MS


@pytest.mark.xfail(
    strict=True,
    reason="a batch begins with its first stream: what runs on others while that waits is lost",
)
def test_what_runs_while_a_stream_waits_is_counted(compile_program: Compile) -> None:
    _, seen = run(compile_program, "wait-for-next", 30, 0, 1)

    assert seen.share < 33


@pytest.mark.parametrize("host_writes", [0, 1], ids=["a stream writes", "the host writes"])
@pytest.mark.parametrize("at_a_time", [1, 2])
@pytest.mark.parametrize("is_one_kind", [0, 1], ids=["two kinds", "one kind"])
@pytest.mark.parametrize("percent", [90, 50, 30])
def test_kernels_that_look_at_memory_go_on(
    compile_program: Compile, percent: int, is_one_kind: int, at_a_time: int, host_writes: int
) -> None:
    """They have the GPU while the cap holds what they wait for, and pay for it."""
    kept, seen = run(compile_program, "spin-for-next", percent, is_one_kind, at_a_time, host_writes)

    assert kept > LEAST_KEPT
    assert seen.longest_ns < 1500 * MS  # once, until it is known
    assert seen.booked_in_all_ns / seen.in_all_ns < percent / 100 + 0.05
