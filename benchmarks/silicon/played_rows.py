"""What an H100 showed of launch-bound programs on 2026-11-22, as rows to measure again."""

from dataclasses import dataclass
from enum import Enum

from ..program_plans import Loop
from .holding import Hold

#: Share of a program alone, and of each of a pair.
ALONE_PERCENT, PAIR_PERCENT = 90, 50
#: What each must keep, where its cap does not bind and both together fit.
ALONE_LEAST, PAIR_LEAST = 98.0, 95.0
_POINTS = 7.0
_RATE_POINTS = 10.0
_FIRST_RUN = "first run on an H100, 2026-11-22"
_REPEATED = (
    "first run on an H100: 11 to 14 % fewer from 2 kinds on; by kinds from a pretended driver "
    "with its costs"
)


class Base(Enum):
    """What a row's values are a percentage of."""

    SILICON = "of the H100's rate"
    ALONE = "share of each alone, bare"
    BARE = "share of bare"  # of the same programs together


@dataclass(frozen=True, slots=True)
class PlayedRow:
    """Programs next to each other, and what each got done on silicon.

    Attributes:
        name: as it is shown.
        programs: loops, and traces by their names.
        hold: how they are held.
        base: what the values are a percentage of.
        silicon: of each program.
        points: how far each may be off.
        source: of silicon's values.
        least: the bar of what is held; what the shim of that day reached on silicon is only told.
    """

    name: str
    programs: tuple[Loop | str, ...]
    hold: Hold
    base: Base
    silicon: tuple[float, ...]
    points: float
    source: str
    least: float | None = None


def _bare(program: Loop | str) -> PlayedRow:
    return PlayedRow(
        f"{program}, bare", (program,), Hold.BARE, Base.SILICON, (100.0,), _RATE_POINTS, _FIRST_RUN
    )


def _alone(program: Loop | str, silicon: float, source: str = _FIRST_RUN) -> PlayedRow:
    name = f"{program}, {ALONE_PERCENT} %"
    return PlayedRow(
        name, (program,), Hold.CAPS, Base.BARE, (silicon,), _POINTS, source, ALONE_LEAST
    )


def _pair(programs: tuple[Loop | str, ...], hold: Hold, *silicon: float) -> PlayedRow:
    base = Base.ALONE if hold is Hold.BARE else Base.BARE
    name = f"{' + '.join(map(str, programs))} ({hold.value})"
    least = PAIR_LEAST if hold is Hold.WINDOWS else None
    return PlayedRow(name, programs, hold, base, silicon, _POINTS, _FIRST_RUN, least)


_LOOPS = (Loop(64), Loop(64))
_TRACES = ("gpt", "decode")

PLAYED_ROWS = (
    _bare(Loop(64)),
    _alone(Loop(1), 98.5),
    _alone(Loop(8), 86.0, _REPEATED),
    _alone(Loop(64), 87.0, _REPEATED),
    _alone(Loop(500), 85.0, _REPEATED),
    _pair(_LOOPS, Hold.BARE, 100.0, 100.0),
    _pair(_LOOPS, Hold.CAPS, 83.9, 83.9),  # 52 of 62 thousand launches a second
    _pair(_LOOPS, Hold.WINDOWS, 46.8, 46.8),  # 29 of 62
    _bare("decode"),
    _bare("gpt"),
    _bare("conv"),
    _alone("decode", 75.5),  # 71 to 80
    _alone("gpt", 88.0),
    _alone("conv", 91.0),  # 90 to 92
    _pair(_TRACES, Hold.BARE, 96.6, 87.5),  # 57 of 59 steps a second, 225 of 257
    _pair(_TRACES, Hold.CAPS, 86.0, 91.1),  # 49 of 57, 205 of 225
    _pair(_TRACES, Hold.WINDOWS, 43.9, 48.0),  # 25, 108
)
#: Those of a quick run.
QUICK_PLAYED = tuple(
    row for row in PLAYED_ROWS if not set(row.programs) & {Loop(8), Loop(500), "conv"}
)
