"""The figure `programs`: what comes of made-up windows, and what is told of a failure."""

import pytest

from benchmarks.figure import Measurement, judge
from benchmarks.played_tenants import Kept, PlayedWindow
from benchmarks.player import Played
from benchmarks.program_cases import CASES, Case, Goal
from benchmarks.program_plans import Loop, Queue, plan_of
from benchmarks.programs import Rounds, summarise
from benchmarks.repeats import OURS, US
from benchmarks.tenant_programs import Window
from benchmarks.trace_plan import script

ALONE = Case(("decode",), (90,), Goal.KEPT)
CAPPED = Case(("gpt",), (40,), Goal.SHARE)
PAIR = Case(("gpt", "decode"), (50, 50), Goal.KEPT)
LIGHT = Case(("decode", Queue(200 * US)), (30, 70), Goal.LIGHT)


def _window(*programs: tuple[float, float, float]) -> PlayedWindow:
    """Returns a window by steps a second, p99 in ms and share in percent of each program."""
    played = tuple(Played(steps, p99_ms, 0.0) for steps, p99_ms, _ in programs)
    shares = tuple(share for _, _, share in programs)
    return PlayedWindow(played, Window(shares, (None,) * len(programs), ()))


def _values(found: list[Measurement], quantity: str) -> list[float | None]:
    return [m.value for m in found if m.subject == OURS and m.quantity == quantity]


@pytest.mark.parametrize(("steps", "missed"), [((99.0, 97.0, 98.0), 0), ((99.0, 97.0, 97.5), 1)])
def test_alone_the_median_of_the_rounds_is_held_against_bare(
    steps: tuple[float, ...], missed: int
) -> None:
    bare = [_window((100.0, 4.0, 16.0))] * 3
    held = [_window((each, 4.1, 16.0)) for each in steps]

    found = summarise(ALONE, Rounds(Kept(bare, {OURS: held})), [OURS])

    assert _values(found, "steps") == [sorted(steps)[1] / 100]
    assert len(judge(found)) == missed


@pytest.mark.parametrize(
    ("bare_share", "shares", "missed"),
    [(51.0, (40.9, 39.1), 0), (51.0, (40.0, 41.1), 1), (30.0, (29.5, 30.2), 0)],
)
def test_a_cap_that_binds_is_kept_in_every_round(
    bare_share: float, shares: tuple[float, float], missed: int
) -> None:
    bare = [_window((60.0, 20.0, bare_share))] * 2
    held = [_window((48.0, 25.0, share)) for share in shares]

    found = summarise(CAPPED, Rounds(Kept(bare, {OURS: held})), [OURS])

    assert len(judge(found)) == missed


def test_each_of_a_pair_is_held_against_what_it_does_in_the_bare_pair() -> None:
    bare = [_window((50.0, 20.0, 40.0), (200.0, 5.0, 15.0))]
    held = [_window((49.0, 20.0, 40.0), (100.0, 9.0, 8.0))]

    found = summarise(PAIR, Rounds(Kept(bare, {OURS: held})), [OURS])

    assert _values(found, "steps") == [0.98, 0.5]
    (sentence,) = judge(found)
    assert "2, decode" in sentence


def test_light_next_to_heavy_is_told_bare_too_and_judged_under_a_library_only() -> None:
    solo = [_window((250.0, 5.0, 16.0))]
    bare = [_window((175.0, 9.5, 11.0), (10.0, 300.0, 60.0))]
    held = [_window((200.0, 8.5, 13.0), (10.0, 300.0, 70.0))]

    found = summarise(LIGHT, Rounds(Kept(bare, {OURS: held}), solo), [OURS])

    assert [m.value for m in found if m.subject == "none"] == [0.7, 4.5, 60.0]
    assert [m.value for m in found if m.subject == OURS] == [0.8, 3.5, 70.0]
    assert len(judge(found)) == 2
    assert all("with libvgpu" in sentence for sentence in judge(found))


@pytest.mark.parametrize("case", [ALONE, CAPPED, PAIR, LIGHT], ids=lambda case: case.title)
def test_a_failure_is_told_in_every_case(case: Case) -> None:
    bare = [_window(*[(50.0, 20.0, 40.0)] * len(case.programs))]
    kept = Kept(bare, {}, {OURS: "it crashed"})

    found = summarise(case, Rounds(kept, [_window((50.0, 20.0, 40.0))]), [OURS])

    ours = [(m.value, m.note) for m in found if m.subject == OURS]
    assert ours and set(ours) == {(None, "it crashed")}


def test_every_case_has_a_share_for_each_program_and_a_title_of_its_own() -> None:
    assert all(len(case.programs) == len(case.core_percents) for case in CASES)
    assert len({case.title for case in CASES}) == len(CASES)


def test_a_queue_is_kernels_in_a_row_without_a_pause() -> None:
    lines = script(plan_of(Queue(200 * US))).splitlines()

    rows = {line for line in lines if line.startswith("cuLaunchKernel")}
    assert rows == {"cuLaunchKernel 0 0 264 1024 0 200000 0"}
    assert "sync_steps 0" in lines
    assert (str(Queue(200 * US)), str(Loop(1))) == ("queue of 200 µs kernels", "loop of 1 kind")
