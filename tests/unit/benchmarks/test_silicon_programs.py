"""Programs, calls and turns of the figure `silicon`: what is played, read and judged."""

from collections.abc import Sequence

import pytest

from benchmarks.figure import judge
from benchmarks.player import Played
from benchmarks.program_plans import LOOP_GAP_NS, LOOP_KERNEL_NS, Loop, loop_plan
from benchmarks.silicon import calls, played, turns
from benchmarks.silicon.bench import Window
from benchmarks.silicon.calls import CALL_ROWS
from benchmarks.silicon.holding import Hold
from benchmarks.silicon.played_rows import (
    PLAYED_ROWS,
    Base,
    PlayedRow,
)
from benchmarks.silicon.turns import TurnRow, Turns
from benchmarks.trace_plan import script
from libvgpu.errors import VgpuError
from support.sim.gpu import SimulatedGpu
from support.sim.measured import SHOWN

WINDOW = Window(0.0, 1.0)


@pytest.mark.parametrize("kinds", [1, 8, 64, 500])
def test_a_loop_launches_its_kinds_in_turn_with_a_fixed_gap_after_each(kinds: int) -> None:
    lines = script(loop_plan(kinds)).splitlines()

    assert f"kinds {kinds}" in lines
    rows = [line.split() for line in lines if line.startswith("cuLaunchKernel")]
    assert len(rows) >= 512
    assert [int(row[2]) for row in rows] == [n % kinds for n in range(len(rows))]
    assert len(rows) % kinds == 0  # so that the next step begins with the first kind
    assert {(int(row[6]), int(row[7])) for row in rows} == {(LOOP_KERNEL_NS, LOOP_GAP_NS)}


@pytest.mark.parametrize("row", PLAYED_ROWS, ids=lambda row: row.name)
def test_a_row_of_programs_has_a_value_for_each(row: PlayedRow) -> None:
    assert len(row.silicon) == len(row.programs)
    # Bare programs cannot be told as a part of themselves, and held ones have just that to be.
    assert (row.hold is Hold.BARE) == (row.base is not Base.BARE)
    assert row.points > 0
    assert row.source


class _Players(played.Players):
    """Plays nothing: a program alone and bare makes 100 steps a second, all else 40.

    Args:
        waits: of windows, in percent, as they come; the last one of all that come later.
    """

    def __init__(self, *waits: float) -> None:
        self.waits = list(waits or (0.0,))
        self.gpu = SimulatedGpu.__new__(SimulatedGpu)
        self.gpu.title = "a GPU"
        self.played: list[tuple[int, Hold]] = []
        self.failing: Hold | None = None

    def silicon_steps(self, program: Loop | str) -> float:
        return 80.0

    def play_once(self, programs: Sequence[Loop | str], hold: Hold, window: Window) -> list[Played]:
        self.played.append((len(programs), hold))
        if hold is self.failing:
            raise VgpuError("a player ended with status 1")
        wait = self.waits.pop(0) if len(self.waits) > 1 else self.waits[0]
        is_alone = len(programs) == 1 and hold is Hold.BARE
        return [Played(100.0 if is_alone else 40.0, 1.0, wait)] * len(programs)


def _row(hold: Hold, base: Base, *programs: str) -> PlayedRow:
    values = (50.0,) * len(programs)
    name = f"{'+'.join(programs)} {hold.value}"
    return PlayedRow(name, programs, hold, base, values, 7.0, "a GPU showed it")


def test_programs_are_told_as_a_part_of_what_they_do_bare_in_the_same_round() -> None:
    rows = [
        _row(Hold.BARE, Base.SILICON, "gpt"),
        _row(Hold.CAPS, Base.BARE, "gpt"),
        _row(Hold.BARE, Base.ALONE, "gpt", "decode"),
        _row(Hold.WINDOWS, Base.BARE, "gpt", "decode"),
    ]
    players = _Players()

    found = played.measure_played(players, rows, WINDOW, 2)

    values = [(each.case, each.value) for each in found]
    assert values == [
        ("gpt bare", 125.0),
        ("gpt caps", 40.0),
        ("gpt+decode bare, program 1", 40.0),
        ("gpt+decode bare, program 2", 40.0),
        ("gpt+decode windows, program 1", 100.0),
        ("gpt+decode windows, program 2", 100.0),
    ]
    # Bare programs are played once a round: gpt, decode, and both.
    assert players.played.count((1, Hold.BARE)) == 4
    assert players.played.count((2, Hold.BARE)) == 2


def test_what_others_take_of_the_processor_is_left_out_and_told() -> None:
    (found,) = played.measure_played(
        _Players(20.0), [_row(Hold.BARE, Base.SILICON, "gpt")], WINDOW, 1
    )

    assert found.value == pytest.approx(100 * (100 / 0.8) / 80, abs=0.01)
    busy = "other programs had the processor for up to 20 % of the time"
    assert found.note == f"a GPU showed it; {busy}"


@pytest.mark.parametrize(
    ("waits", "counted", "windows"),
    [((3.0, 0.0), 3.0, 1), ((30.0, 2.0, 0.0), 2.0, 2), ((30.0, 12.0, 20.0, 0.0), 12.0, 3)],
)
def test_a_window_that_others_disturbed_is_played_again(
    waits: tuple[float, ...], counted: float, windows: int
) -> None:
    players = _Players(*waits)

    (found,) = players.play(["gpt"], Hold.BARE, WINDOW)

    assert (found.cpu_wait_percent, len(players.played)) == (counted, windows)


def test_a_program_that_fails_says_why_and_the_others_go_on() -> None:
    players = _Players()
    players.failing = Hold.CAPS
    rows = [_row(Hold.CAPS, Base.BARE, "gpt"), _row(Hold.BARE, Base.SILICON, "gpt")]

    failed, other = played.measure_played(players, rows, WINDOW, 2)

    assert (failed.value, failed.note) == (None, "a player ended with status 1")
    assert other.value == 125.0


def test_the_median_of_the_rounds_is_held_against_silicon() -> None:
    row = _row(Hold.BARE, Base.SILICON, "gpt")

    (found,) = played.judged(row, [[90.0], [56.0], [10.0]], [Played(1.0, 1.0, 0.0)], "a GPU")
    (missed,) = played.judged(row, [[58.0]], [Played(1.0, 1.0, 0.0)], "a GPU")

    assert (found.value, judge([found])) == (56.0, [])
    (told,) = judge([missed])
    assert told.endswith("H100's rate is 58 %, on silicon it is 50 ± 7 (a GPU showed it)")


def test_rows_of_calls_have_what_was_measured() -> None:
    shown = SHOWN["calls_ns"] | SHOWN["gpu_ns"]
    values = {round(value) for value in shown.values()}
    in_a_row = [
        SHOWN["gpu_ns"][f"10 us kernels in a row, {events}: ns each"]
        for events in ("no events", "an event after each")
    ]
    values.add(in_a_row[1] - in_a_row[0])

    measured = [row for row in CALL_ROWS if row.source.startswith("measured")]

    assert len(measured) >= 20
    assert [row.name for row in measured if row.silicon_ns not in values] == []


def test_a_call_that_was_not_timed_is_no_match() -> None:
    first, second = CALL_ROWS[:2]
    text = f"{first.silicon_ns + first.tolerance_ns:.0f} {first.name}\n"

    told, lost = calls.judged([first, second], calls.read_lines(text), "a GPU")

    assert judge([told]) == []
    assert lost.value is None
    assert "the client did not tell it" in judge([lost])[0]


def test_what_is_lost_at_a_switch_is_what_turns_leave_of_a_period() -> None:
    row = TurnRow(2, 100)

    turn, lost = turns.judged(row, [Turns(50, 2_091_000, 4_484_000)] * 2, "a GPU")

    assert (turn.value, lost.value) == (2091.0, 151.0)
    assert judge([turn, lost]) == []
    _, lost = turns.judged(row, [Turns(50, 2_091_000, 4_644_000)] * 2, "a GPU")
    assert "lost at a switch is 231 us, on silicon it is 151 ± 15.1" in judge([lost])[0]


def test_a_few_turns_tell_nothing() -> None:
    with pytest.raises(VgpuError, match="only 0 turns were seen, must be 20"):
        turns.read_turns("turns 0 turn_ns 0 period_ns 0\n")
