"""The sampling of uncapped launches, under simulated time: how right it is, and what it costs."""

from dataclasses import dataclass

import pytest

from support import Compile
from support.ended import printed

PAIR_NS = 10_000_000
RING = 16


@dataclass(frozen=True)
class Run:
    """A minute of a program: what the GPU did, what was estimated, what it took."""

    gpu_ns: int
    launches: int
    seen_gpu_ns: int
    seen_launches: int
    pairs: int
    gated_launches: int
    passed_ns: int


def run(compile_program: Compile, pattern: str, seed: int = 1) -> Run:
    program = compile_program(
        "uncapped_model.c",
        "libvgpu/src/compute/cap/uncapped.c",
        flags=("-Ilibvgpu/src", "-fsanitize=address,undefined", "-Wno-unused-parameter"),
    )
    return Run(*map(int, printed(program, pattern, str(seed)).split()))


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("pattern", ["one", "turns", "twice", "idle", "phases", "many"])
def test_the_estimate_over_a_minute_is_right_to_a_tenth(
    compile_program: Compile, pattern: str, seed: int
) -> None:
    seen = run(compile_program, pattern, seed)

    assert seen.seen_gpu_ns == pytest.approx(seen.gpu_ns, rel=0.1)
    assert seen.seen_launches == pytest.approx(seen.launches, rel=0.15)
    assert seen.seen_gpu_ns <= seen.passed_ns


@pytest.mark.parametrize("pattern", ["one", "turns", "twice", "idle", "phases", "many"])
def test_there_is_at_most_one_pair_in_10_ms(compile_program: Compile, pattern: str) -> None:
    seen = run(compile_program, pattern)

    assert 0 < seen.pairs <= seen.passed_ns / PAIR_NS + RING
    assert seen.gated_launches <= seen.launches / 2


def test_rounds_of_too_many_launches_are_given_up_and_the_gate_opens(
    compile_program: Compile,
) -> None:
    seen = run(compile_program, "huge")

    assert (seen.seen_gpu_ns, seen.seen_launches) == (0, 0)
    assert seen.gated_launches < seen.launches / 4
