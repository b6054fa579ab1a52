"""The GPU's clock by the host's, from anchors and a driver that are made up."""

import pytest

from support import Compile
from support.ended import printed

#: What single precision leaves of a time of seconds between two events.
NS = 300
LATE_NS = 30_000


def ask(compile_program: Compile, parts_per_million: float, steps: str) -> tuple[list[str], str]:
    """Returns the answers, and how many events there are at the end and were misused."""
    program = compile_program(
        "gpu_clock_steps.c",
        "libvgpu/src/compute/measure/gpu_clock.c",
        flags=("-fsanitize=address,undefined",),
    )
    *answers, events = printed(program, str(parts_per_million), *steps.split()).splitlines()
    return answers, events


def test_without_an_anchor_nothing_is_told(compile_program: Compile) -> None:
    assert ask(compile_program, 0, "q1 x2 q3") == (["unknown", "unknown"], "1 0")


def test_an_anchor_is_believed_for_a_moment(compile_program: Compile) -> None:
    answers, _ = ask(compile_program, 0, "a100 q119 q121")

    assert abs(int(answers[0])) < NS
    assert answers[1] == "unknown"


@pytest.mark.parametrize("parts_per_million", [-50, 0, 50, 300])
def test_two_anchors_tell_the_rate_for_as_long_as_there_is_between_them(
    compile_program: Compile, parts_per_million: float
) -> None:
    """Without the rate 50 parts in a million are 45 us in 900 ms."""
    answers, _ = ask(compile_program, parts_per_million, "a100 a1000 q1850 q1950")

    assert abs(int(answers[0])) < NS
    assert answers[1] == "unknown"


def test_an_anchor_that_is_late_moves_the_rate_little(compile_program: Compile) -> None:
    """The host was told 30 us late once: that is what one answer may be off by, and not more."""
    late, _ = ask(compile_program, 20, "a0 a900 l1000 q1900")
    after, _ = ask(compile_program, 20, "a0 a900 l1000 a1900 q2700")

    assert abs(int(late[0])) < 2 * LATE_NS + NS
    assert abs(int(after[0])) < NS


def test_a_jump_of_a_clock_is_no_rate(compile_program: Compile) -> None:
    """30 us in 21 ms would be 1400 parts in a million: 12 us more in the next 9 ms."""
    answers, _ = ask(compile_program, 0, "a0 l21 q30")

    assert abs(int(answers[0]) - LATE_NS) < NS


def test_no_event_is_lost_or_used_after_its_end(compile_program: Compile) -> None:
    anchors = " ".join(f"a{at}" for at in range(0, 20_000, 500))
    answers, events = ask(compile_program, 30, f"{anchors} q19900")

    assert abs(int(answers[0])) < NS
    assert events == "3 0"  # two anchors, and the one that is given back


def test_a_context_takes_its_anchors_along(compile_program: Compile) -> None:
    answers, _ = ask(compile_program, 0, "a100 a200 x210 q211 a220 q225")

    assert answers[0] == "unknown"
    assert abs(int(answers[1])) < NS
