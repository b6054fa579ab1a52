"""Two processes with a GPU and a cap each, whose iterations end in a collective. Simulated time.

A part of a collective has its GPU until the other one's has run, too. Both are to go on at the pace
that the lower cap leaves, also below 50 %, where each would be late by more than it has waited.
"""

import pytest

from support import Compile
from support.shim.throttle_model import Seen, run_case

MS = 1_000_000
KERNEL_NS, COLLECTIVE_NS = MS, MS // 20
FEW, MANY = 1, 20


def seen_of(
    compile_program: Compile, percent: int, other_percent: int, *, kernels: int, is_waited_for: int
) -> Seen:
    numbers = (KERNEL_NS, kernels, is_waited_for, other_percent)
    seen = run_case(compile_program, "collectives", percent, *numbers)

    round_ns = kernels * KERNEL_NS + COLLECTIVE_NS
    paced_ns = round_ns * 100 / min(percent, other_percent)
    assert seen.passed_ns / max(seen.rounds, 1) == pytest.approx(paced_ns, rel=0.01)
    return seen


@pytest.mark.parametrize("kernels", [FEW, MANY])
@pytest.mark.parametrize("is_waited_for", [0, 1])
@pytest.mark.parametrize(
    ("percent", "other_percent"), [(90, 90), (60, 30), (30, 60), (25, 25), (25, 20), (10, 40)]
)
def test_both_go_at_the_pace_of_the_slower_one(
    compile_program: Compile, percent: int, other_percent: int, is_waited_for: int, kernels: int
) -> None:
    seen = seen_of(
        compile_program, percent, other_percent, kernels=kernels, is_waited_for=is_waited_for
    )

    assert seen.share <= percent + 0.5
    assert seen.apart <= 1 + (1 - is_waited_for)


@pytest.mark.parametrize(("percent", "other_percent"), [(60, 60), (40, 30), (10, 40)])
def test_a_program_of_nothing_but_collectives_keeps_its_cap(
    compile_program: Compile, percent: int, other_percent: int
) -> None:
    seen = seen_of(compile_program, percent, other_percent, kernels=0, is_waited_for=1)

    assert seen.share <= percent + 0.5
