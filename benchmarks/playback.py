"""How fast real programs run, played back from their traces: bare, and under the shim.

Each program is alone, then two launch-bound ones are side by side. Under the shim a program alone
has a cap of 90 %, which binds only the graph, and the pair has half each, with an arbiter. What
counts are steps a second; those under the shim are told as a part of those without it in the
same round. Next to them stands what the programs themselves did on an H100.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from libvgpu.sim import find_profile

from .figure import Figure, Measurement, Options, spread
from .played_tenants import Kept, PlayedTenant, note_of, play_round, rounds_of
from .player import PLAYER, PlayedProgram
from .program_plans import plan_of, silicon_steps
from .repeats import LABEL, lengths, no_value, say, subjects_of
from .stage import PROFILE, open_stage
from .trace_plan import script

PROGRAMS = ("decode", "gpt", "conv", "generate", "gptgraph")
PAIR = ("gpt", "decode")
#: Of the H100's rate, by which a bare program may be off.
_BARE_OFF_BY = 0.1
_ALONE_PERCENT, _PAIR_PERCENT = 90, 50
_SILICON = "H100, 2026-11-22"
#: Steps a second of the pair there, without any shim.
_SILICON_PAIR = {"gpt": 57.0, "decode": 225.0}
#: Least and most that the programs kept of their bare steps there, under the shim of that day.
_SILICON_KEPT_ALONE = {"gpt": (0.88, 0.88), "decode": (0.71, 0.80), "conv": (0.90, 0.92)}
_SILICON_KEPT_PAIR = {"gpt": (0.44, 0.44), "decode": (0.48, 0.48)}


def cases_of(count: int | None) -> list[tuple[str, ...]]:
    """Returns which programs run together; a count takes only the first so many programs."""
    programs = PROGRAMS[:count]
    alone: list[tuple[str, ...]] = [(name,) for name in programs]
    return [*alone, PAIR] if set(PAIR) <= set(programs) else alone


def summarise(
    case: Sequence[str], kept: Kept, silicon: Mapping[str, float], subjects: Sequence[str]
) -> list[Measurement]:
    """Returns the measurements of one case.

    Args:
        case: which programs ran together.
        kept: what they did.
        silicon: steps a second of each on an H100, bare.
        subjects: the libraries.
    """
    found = []
    told_kept = _SILICON_KEPT_ALONE if len(case) == 1 else _SILICON_KEPT_PAIR
    for index, name in enumerate(case):
        title = f"{name} alone" if len(case) == 1 else f"{name} of {' + '.join(case)}"
        rates = [window.played[index].steps_per_second for window in kept.bare]
        plain = silicon[name]
        note = note_of([window.played[index] for window in kept.bare])
        found.append(spread(title, "none", "steps", "steps/s", rates, note))
        found.append(Measurement(title, _SILICON, "steps", "steps/s", round(plain, 3)))
        ratios = [rate / plain for rate in rates]
        played = spread(title, "none", "steps", "of the H100", ratios, note)
        found.append(replace(played, silicon=1.0, tolerance=_BARE_OFF_BY))
        slowest = [window.played[index].p99_ms for window in kept.bare]
        found.append(spread(title, "none", "p99 of a step", "ms", slowest))
        percent = _ALONE_PERCENT if len(case) == 1 else _PAIR_PERCENT
        what = f"steps at {percent} %"
        if name in told_kept:
            low, high = told_kept[name]
            middle = round((low + high) / 2, 3)
            found.append(Measurement(title, _SILICON, what, "of bare", middle, low, high))
        for subject in subjects:
            if subject in kept.failures:
                found.append(no_value(title, subject, what, "of bare", kept.failures[subject]))
                continue
            pairs = rounds_of(kept, subject)
            ratios = [
                held.played[index].steps_per_second / bare.played[index].steps_per_second
                for held, bare in pairs
            ]
            words = note_of([window.played[index] for pair in pairs for window in pair])
            found.append(spread(title, subject, what, "of bare", ratios, words))
            slowest = [held.played[index].p99_ms for held, _ in pairs]
            found.append(spread(title, subject, f"p99 of a step at {percent} %", "ms", slowest))
    return found


def measure(options: Options) -> list[Measurement]:
    """Takes the figure; a count takes only the first so many programs.

    Raises:
        VgpuError: there is no compiler, a trace is damaged, or a player fails without any shim.
    """
    long, subjects = lengths(options), subjects_of(options)
    cases = cases_of(options.count)
    kept = {case: Kept() for case in cases}
    plans = {name: plan_of(name) for name in dict.fromkeys(name for case in cases for name in case)}
    with open_stage(*PLAYER, profile=find_profile(PROFILE)) as stage:
        programs = {}
        for name, plan in plans.items():
            programs[name] = PlayedProgram(
                name,
                stage.directory / f"{name}.script",
                long.warm_up_seconds,
                long.window_seconds,
            )
            programs[name].path.write_text(script(plan))
        for number in range(options.rounds):
            for case in cases:
                say(f"round {number + 1} of {options.rounds}: {' + '.join(case)}")
                percent = _ALONE_PERCENT if len(case) == 1 else _PAIR_PERCENT
                tenants = [PlayedTenant(programs[name], percent) for name in case]
                play_round(stage, kept[case], tenants, subjects)
    found = []
    plain = {name: silicon_steps(plan) for name, plan in plans.items()}
    for case in cases:
        silicon = plain if len(case) == 1 else _SILICON_PAIR
        found += summarise(case, kept[case], silicon, list(subjects))
    return found


FIGURE = Figure(
    name="traces",
    summary="how fast real programs run, played back as an H100 ran them, bare and under the shim",
    label=LABEL,
    measure=measure,
    rounds=1,
    has_own_time=True,
)
