"""Real and launch-bound programs in slices: what they keep of what they do without any shim.

Alone under a cap that does not bind, alone under one that does, in pairs whose demands fit the GPU
together, and a light program next to one that wants all of it. All are played (program_plans.py)
on the simulated GPU with an H100's costs and time slices, and all that is compared is of the same
round. Steps are told per second in which a player had a processor, so that a busy machine changes
them little; shares are device time by the books of the simulated GPU.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from libvgpu.sim import Profile, find_profile

from .figure import Figure, Measurement, Options, spread
from .played_tenants import Kept, PlayedTenant, PlayedWindow, note_of, play, play_round, rounds_of
from .player import PLAYER, PlayedProgram
from .plot import draw
from .program_cases import CASES, Case, Goal
from .program_plans import Program, plan_of
from .repeats import (
    LABEL,
    Lengths,
    curves_of,
    judged_errors,
    lengths,
    no_value,
    say,
    subjects_of,
)
from .stage import PROFILE, Stage, open_stage
from .trace_plan import script

_LEAST_ALONE, _LEAST_OF_PAIR = 0.98, 0.95
_SHARE_POINTS = 1.0
_LEAST_LIGHT, _MOST_ADDED_MS = 0.85, 3.0
#: Of the GPU, of the heavy program.
LEAST_HEAVY_PERCENT = 65.0


@dataclass
class Rounds:
    """The rounds of one case.

    Attributes:
        kept: of its programs together.
        solo: of the first one alone and bare, where `Goal.LIGHT` is asked.
    """

    kept: Kept = field(default_factory=Kept)
    solo: list[PlayedWindow] = field(default_factory=list)


def _kept(case: Case, rounds: Rounds, subject: str) -> list[Measurement]:
    """Returns what each program keeps of what it does bare, in the same company."""
    least = _LEAST_ALONE if len(case.programs) == 1 else _LEAST_OF_PAIR
    found = []
    for index in range(len(case.programs)):
        title = case.title_of(index)
        if subject in rounds.kept.failures:
            why = rounds.kept.failures[subject]
            found.append(no_value(title, subject, "steps", "of bare", why))
            continue
        pairs = [
            (held.played[index], bare.played[index])
            for held, bare in rounds_of(rounds.kept, subject)
        ]
        ratios = [held.steps_per_own_second / bare.steps_per_own_second for held, bare in pairs]
        note = note_of([played for pair in pairs for played in pair])
        told = spread(title, subject, "steps", "of bare", ratios, note)
        found.append(replace(told, least=least))
        slowest = [held.p99_ms for held, _ in pairs]
        found.append(spread(title, subject, "p99 of a step", "ms", slowest))
    return found


def _share(case: Case, rounds: Rounds, subject: str) -> list[Measurement]:
    """Returns how far a program is from its cap, or from what it takes bare if that is less."""
    if subject in rounds.kept.failures:
        return [no_value(case.title, subject, "share", "%", rounds.kept.failures[subject])]
    pairs = rounds_of(rounds.kept, subject)
    bare = sum(each.books.shares[0] for _, each in pairs) / len(pairs)
    expected = min(case.core_percents[0], bare)
    shares = [held.books.shares[0] for held, _ in pairs]
    return judged_errors(case.title, subject, "share", shares, expected, _SHARE_POINTS)


def _light(
    case: Case, windows: Sequence[PlayedWindow], solo: Sequence[PlayedWindow], subject: str
) -> list[Measurement]:
    """Returns what a light program keeps of its solo rate, and a heavy one has of the GPU."""
    pairs = [(each.played[0], alone.played[0]) for each, alone in zip(windows, solo, strict=True)]
    note = note_of([played for pair in pairs for played in pair])
    ratios = [each.steps_per_own_second / alone.steps_per_own_second for each, alone in pairs]
    added_ms = [each.p99_ms - alone.p99_ms for each, alone in pairs]
    shares = [each.books.shares[1] for each in windows]
    light, heavy = case.title_of(0), case.title_of(1)
    return [
        replace(spread(light, subject, "steps", "of solo", ratios, note), least=_LEAST_LIGHT),
        replace(
            spread(light, subject, "p99 of a step, more than solo", "ms", added_ms, note),
            most=_MOST_ADDED_MS,
        ),
        replace(spread(heavy, subject, "share", "%", shares, note), least=LEAST_HEAVY_PERCENT),
    ]


def _bare(case: Case, rounds: Rounds) -> list[Measurement]:
    """Returns what the programs do without any shim; it meets no bar and misses none."""
    if case.goal is Goal.LIGHT:
        found = _light(case, rounds.kept.bare, rounds.solo, "none")
        return [replace(each, least=None, most=None) for each in found]
    found = []
    for index in range(len(case.programs)):
        title = case.title_of(index)
        windows = [each.played[index] for each in rounds.kept.bare]
        rates = [each.steps_per_own_second for each in windows]
        found.append(spread(title, "none", "steps", "steps/s", rates, note_of(windows)))
        slowest = [each.p99_ms for each in windows]
        found.append(spread(title, "none", "p99 of a step", "ms", slowest))
        shares = [each.books.shares[index] for each in rounds.kept.bare]
        found.append(spread(title, "none", "share", "%", shares))
    return found


def summarise(case: Case, rounds: Rounds, subjects: Sequence[str]) -> list[Measurement]:
    """Returns the measurements of one case; without a device, so that made-up windows do too."""
    found = _bare(case, rounds)
    for subject in subjects:
        if case.goal is Goal.KEPT:
            found += _kept(case, rounds, subject)
        elif case.goal is Goal.SHARE:
            found += _share(case, rounds, subject)
        elif subject in rounds.kept.failures:
            why = rounds.kept.failures[subject]
            found.append(no_value(case.title, subject, "steps", "of solo", why))
        else:
            found += _light(case, rounds.kept.held[subject], rounds.solo, subject)
    return found


def tenants_of(case: Case, players: Mapping[Program, PlayedProgram]) -> list[PlayedTenant]:
    """Returns a case's tenants."""
    pairs = zip(case.programs, case.core_percents, strict=True)
    return [PlayedTenant(players[program], percent) for program, percent in pairs]


def players_of(stage: Stage, cases: Sequence[Case], long: Lengths) -> dict[Program, PlayedProgram]:
    """Writes the scripts of all programs of some cases.

    Raises:
        VgpuError: a trace is missing or damaged.
    """
    found: dict[Program, PlayedProgram] = {}
    for program in dict.fromkeys(each for case in cases for each in case.programs):
        path = stage.directory / f"{len(found)}.script"
        path.write_text(script(plan_of(program)))
        found[program] = PlayedProgram(
            str(program), path, long.warm_up_seconds, long.window_seconds
        )
    return found


def _draw(options: Options, case: Case, kept: Kept) -> None:
    """Draws who of several had the GPU when, in the first round, bare and under each subject."""
    if options.plot is None or len(case.programs) == 1:
        return
    pairs = zip(case.core_percents, case.programs, strict=True)
    labels = [f"{percent} %, {program}" for percent, program in pairs]
    for subject, windows in {"none": kept.bare, **kept.held}.items():
        curves = curves_of([windows[0].books], labels, [None] * len(labels))
        draw(options.plot, f"programs: {case.title}, {subject}", LABEL, curves)


def measure_cases(
    cases: Sequence[Case], options: Options, profile: Profile | None = None
) -> list[Measurement]:
    """Measures some cases.

    Args:
        profile: of the simulated GPU; None: the usual one.

    Raises:
        VgpuError: there is no compiler, a trace is damaged, or a player fails without any shim.
    """
    long, subjects = lengths(options), subjects_of(options)
    all_rounds = {case: Rounds() for case in cases}
    with open_stage(*PLAYER, profile=profile or find_profile(PROFILE)) as stage:
        players = players_of(stage, cases, long)
        for number in range(options.rounds):
            for case, rounds in all_rounds.items():
                say(f"round {number + 1} of {options.rounds}: {case.title}")
                tenants = tenants_of(case, players)
                if case.goal is Goal.LIGHT:
                    rounds.solo.append(play(stage, tenants[:1], None))
                is_drawn = options.plot is not None and len(tenants) > 1
                play_round(stage, rounds.kept, tenants, subjects, sampled=is_drawn)
    found = []
    for case, rounds in all_rounds.items():
        found += summarise(case, rounds, list(subjects))
        _draw(options, case, rounds.kept)
    return found


def measure(options: Options) -> list[Measurement]:
    """Takes the figure; a count takes only the first so many cases.

    Raises:
        VgpuError: there is no compiler, a trace is damaged, or a player fails without any shim.
    """
    return measure_cases(CASES[: options.count], options)


FIGURE = Figure(
    name="programs",
    summary="what real and launch-bound programs keep in a slice, alone, in pairs, light by heavy",
    label=LABEL,
    measure=measure,
    rounds=1,
    has_own_time=True,
)
