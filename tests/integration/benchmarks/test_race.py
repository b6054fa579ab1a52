"""Racing and dying processes: no byte too much, none leaked, none refused that was there."""

import pytest

from benchmarks import crash, memory_race
from benchmarks.figure import Measurement, Options
from support import IS_LONG

RACE_SECONDS = 60.0 if IS_LONG else 0.6
KILLS = 10_000 if IS_LONG else 120


def _values(found: list[Measurement]) -> dict[str, float]:
    return {each.quantity: each.value for each in found if each.value is not None}


@pytest.mark.timeout(RACE_SECONDS + 120)
def test_racing_processes_never_exceed_their_limit_and_get_all_of_it() -> None:
    values = _values(memory_race.measure(Options(None, 1, RACE_SECONDS)))

    assert values["most over the limit"] == 0
    assert values["grants beyond the limit"] == 0
    assert values["false refusals"] == 0
    assert values["ledger against GPU, at rest"] == 0
    assert values["times looked at rest"] >= 2
    assert values["refused"] > 100


# Ten thousand have the machine to themselves: that nobody waits for a second is a matter of time.
@pytest.mark.timing
@pytest.mark.timeout(KILLS / 10 + 120)
def test_killed_processes_leave_nothing_and_nobody_waits() -> None:
    values = _values(crash.measure(Options(None, 1, count=KILLS)))

    assert values["leaked"] == 0
    assert values["held and not charged"] == 0
    assert values["false refusals"] == 0
    assert values["grants beyond the limit"] == 0
    assert values["waits of over 1 s"] == 0
