"""How fast real programs run, played back from their traces: bare, and under the shim.

Each program is alone, then two launch-bound ones are side by side. Under the shim a program alone
has a cap of 90 %, which binds only the graph, and the pair has half each, with an arbiter. What
counts are steps a second; those under the shim are told as a part of those without it in the
same round. Next to them stands what the programs themselves did on an H100.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from libvgpu.errors import VgpuError
from libvgpu.limits import ComputeMode
from libvgpu.sim import find_profile

from .figure import Figure, Measurement, Options, spread
from .repeats import LABEL, ROUNDS, Lengths, lengths, no_value, say, subjects_of
from .stage import PROFILE, Stage, open_stage
from .trace import DIRECTORY, read_trace
from .trace_plan import make_plan, script

PROGRAMS = ("decode", "gpt", "conv", "generate", "gptgraph")
PAIR = ("gpt", "decode")
#: Of the H100's rate, by which a bare program may be off.
_BARE_OFF_BY = 0.1
_ALONE_PERCENT, _PAIR_PERCENT = 90, 50
_ANSWER_SECONDS = 60.0
#: More of it is told, since steps are too few then.
_MOST_CPU_WAIT_PERCENT = 1.0
_MS_PER_SECOND = 1000.0
_SILICON = "H100, 2026-11-22"
#: Steps a second of the pair there, without any shim.
_SILICON_PAIR = {"gpt": 57.0, "decode": 225.0}
#: Least and most that the programs kept of their bare steps there, under the shim of that day.
_SILICON_KEPT_ALONE = {"gpt": (0.88, 0.88), "decode": (0.71, 0.80), "conv": (0.90, 0.92)}
_SILICON_KEPT_PAIR = {"gpt": (0.44, 0.44), "decode": (0.48, 0.48)}


@dataclass(frozen=True, slots=True)
class PlayedProgram:
    """What the processes of a tenant do: a program from its trace.

    Attributes:
        name: of the trace.
        path: of its script.
        long: how long it is played.
    """

    name: str
    path: Path
    long: Lengths

    def arguments(self, memory_bytes_per_second: int) -> list[str]:
        """Returns the player's arguments, which are the same on every GPU."""
        return [
            f"script={self.path}",
            f"warm_up={self.long.warm_up_seconds}",
            f"seconds={self.long.window_seconds}",
        ]


@dataclass(frozen=True, slots=True)
class PlayedTenant:
    """One slice with one played program; its weight is its percentage."""

    client: PlayedProgram
    core_percent: int
    mode: ComputeMode = ComputeMode.STRICT
    processes: int = 1


@dataclass(frozen=True, slots=True)
class Played:
    """What one program did in one window.

    Attributes:
        steps_per_second: of the program.
        p99_ms: host time of a step that one in a hundred takes at least.
        cpu_wait_percent: of the time in which other programs had the player's processor.
    """

    steps_per_second: float
    p99_ms: float
    cpu_wait_percent: float


@dataclass
class Kept:
    """The rounds of one case: per round what each program did, bare and under each subject."""

    bare: list[list[Played]] = field(default_factory=list)
    held: dict[str, list[list[Played]]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)


def read_answer(line: str) -> Played:
    """Returns what a player's line says.

    Raises:
        VgpuError: it is not one of a player.
    """
    try:
        values = json.loads(line)
        keys = ("steps_per_second", "step_p99_ms", "cpu_wait_percent")
        return Played(*(float(values[key]) for key in keys))
    except (ValueError, KeyError, TypeError):
        raise VgpuError(f"the player said {line.strip()!r}, must be its line of JSON") from None


def cases_of(count: int | None) -> list[tuple[str, ...]]:
    """Returns which programs run together; a count takes only the first so many programs."""
    programs = PROGRAMS[:count]
    alone: list[tuple[str, ...]] = [(name,) for name in programs]
    return [*alone, PAIR] if set(PAIR) <= set(programs) else alone


def play(
    stage: Stage, programs: Sequence[PlayedProgram], core_percent: int, preload: Path | None
) -> list[Played]:
    """Plays some programs together and returns what each did.

    Raises:
        VgpuError: a player fails.
    """
    tenants = [PlayedTenant(program, core_percent) for program in programs]
    longest = max(each.long.warm_up_seconds + each.long.window_seconds for each in programs)
    with stage.open(tenants, preload) as running:
        for index in range(len(tenants)):
            running.go(index)
        return [read_answer(line) for line in running.answers(longest + _ANSWER_SECONDS)]


def _held_up(windows: Sequence[Played]) -> str:
    """Returns words for how busy the machine was, empty where that hardly matters."""
    worst = max(window.cpu_wait_percent for window in windows)
    if worst < _MOST_CPU_WAIT_PERCENT:
        return ""
    return f"; other programs had the processor for up to {worst:.0f} % of the time"


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
        rates = [window[index].steps_per_second for window in kept.bare]
        plain = silicon[name]
        note = f"simulated{_held_up([window[index] for window in kept.bare])}"
        found.append(spread(title, "none", "steps", "steps/s", rates, note))
        found.append(Measurement(title, _SILICON, "steps", "steps/s", round(plain, 3)))
        ratios = [rate / plain for rate in rates]
        played = spread(title, "none", "steps", "of the H100", ratios, note)
        found.append(replace(played, silicon=1.0, tolerance=_BARE_OFF_BY))
        slowest = [window[index].p99_ms for window in kept.bare]
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
            pairs = list(zip(kept.held[subject], kept.bare, strict=True))
            ratios = [
                held[index].steps_per_second / bare[index].steps_per_second for held, bare in pairs
            ]
            words = _held_up([window[index] for pair in pairs for window in pair])
            found.append(spread(title, subject, what, "of bare", ratios, f"simulated{words}"))
            slowest = [held[index].p99_ms for held, _ in pairs]
            found.append(spread(title, subject, f"p99 of a step at {percent} %", "ms", slowest))
    return found


def measure(options: Options) -> list[Measurement]:
    """Takes the figure; a count takes only the first so many programs.

    Raises:
        VgpuError: there is no compiler, a trace is damaged, or a player fails without any shim.
    """
    long, subjects = lengths(options), subjects_of(options)
    cases = cases_of(options.count)
    kept = {case: Kept(held={subject: [] for subject in subjects}) for case in cases}
    plans = {
        name: make_plan(read_trace(DIRECTORY / f"{name}.json.gz"))
        for name in dict.fromkeys(name for case in cases for name in case)
    }
    clients = "trace_client", "trace_driver", "trace_script"
    with open_stage(*clients, profile=find_profile(PROFILE)) as stage:
        programs = {}
        for name, plan in plans.items():
            programs[name] = PlayedProgram(name, stage.directory / f"{name}.script", long)
            programs[name].path.write_text(script(plan))
        for number in range(options.rounds):
            for case in cases:
                say(f"round {number + 1} of {options.rounds}: {' + '.join(case)}")
                played = [programs[name] for name in case]
                percent = _ALONE_PERCENT if len(case) == 1 else _PAIR_PERCENT
                kept[case].bare.append(play(stage, played, percent, None))
                for subject, preload in subjects.items():
                    if subject in kept[case].failures:
                        continue
                    try:
                        held = play(stage, played, percent, preload)
                        kept[case].held[subject].append(held)
                    except VgpuError as error:
                        kept[case].failures[subject] = error.message
    found = []
    plain = {name: _MS_PER_SECOND / plan.trace.plain_step_ms for name, plan in plans.items()}
    for case in cases:
        silicon = plain if len(case) == 1 else _SILICON_PAIR
        found += summarise(case, kept[case], silicon, list(subjects))
    return found


FIGURE = Figure(
    name="traces",
    summary="how fast real programs run, played back as an H100 ran them, bare and under the shim",
    label=LABEL,
    measure=measure,
    rounds=ROUNDS,
)
