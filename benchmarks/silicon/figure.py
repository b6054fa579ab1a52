"""The figure ``silicon``: what an H100 showed, measured again on a GPU or on the simulated one."""

from collections.abc import Sequence
from dataclasses import replace

from libvgpu._build import SHIM, build
from libvgpu.errors import VgpuError

from ..figure import Figure, Measurement, Options
from ..gpu import real_gpu
from ..repeats import say
from . import experiments, frameworks, memory
from .bench import Bench, Window, open_bench
from .calls import measure_calls
from .holding import Hold
from .played import measure_played, open_players
from .played_rows import PLAYED_ROWS, QUICK_PLAYED
from .rows import QUICK_ROWS, ROWS, TOTAL_POINTS, Row
from .spin_rate import measure_spin_rate
from .turns import TURN_ROWS, measure_turns

_WARM_UP_SECONDS, _WINDOW_SECONDS = 1.0, 3.0
_QUICK_WARM_UP_SECONDS, _QUICK_SECONDS = 0.5, 1.0


def judged(row: Row, found: Sequence[float], subject: str) -> list[Measurement]:
    """Returns a row's measurements, each with its bar or with what an earlier shim reached."""
    names = [""] if len(found) == 1 else [f", tenant {n + 1}" for n in range(len(found))]
    told = [
        _told(row, f"{row.name}{name}", subject, "share of bare", value, aim, row.points)
        for name, value, aim in zip(names, found, row.aims, strict=True)
    ]
    if len(found) == 1:
        percent = row.loads[0].core_percent
        return [replace(told[0], least=percent - row.points, most=percent + row.points)]
    total = _told(row, row.name, subject, "total", sum(found), sum(row.aims), TOTAL_POINTS)
    return [*told, replace(total, least=row.least_total)]


def _told(
    row: Row, case: str, subject: str, quantity: str, value: float, aim: float, points: float
) -> Measurement:
    told = Measurement(case, subject, quantity, "%", round(value, 2))
    if row.is_simulated:
        return replace(told, simulated=round(aim, 2), tolerance=points)
    if row.hold is Hold.BARE:
        return replace(told, silicon=round(aim, 2), tolerance=points)
    return replace(told, history=round(aim, 2))


def measure_rows(bench: Bench, rows: Sequence[Row], window: Window) -> list[Measurement]:
    """Measures rows; one that fails says why and the others go on."""
    found: list[Measurement] = []
    for row in rows:
        say(row.name)
        try:
            percents = bench.percents(row.loads, row.hold, window, mps=row.mps)
        except VgpuError as error:
            found.append(
                Measurement(
                    row.name, bench.gpu.title, "share of bare", "%", None, note=error.message
                )
            )
        else:
            found += judged(row, percents, bench.gpu.title)
    return found


def measure(options: Options) -> list[Measurement]:
    """Takes the figure.

    Raises:
        VgpuError: there is no GPU to take it on, somebody uses it, or there is no compiler.
    """
    seconds = options.seconds or (_QUICK_SECONDS if options.quick else _WINDOW_SECONDS)
    warm_up = _QUICK_WARM_UP_SECONDS if options.quick else _WARM_UP_SECONDS
    window = Window(min(warm_up, seconds), seconds)
    with real_gpu() as gpu:
        build([SHIM])
        rounds_per_ms = measure_spin_rate(gpu)
        say("calls")
        found = measure_calls(gpu, rounds_per_ms)
        found += measure_turns(gpu, rounds_per_ms, window, TURN_ROWS[: options.count])
        say("memory")
        found += memory.measure(gpu)
        found += frameworks.measure(gpu, frameworks.RUNTIMES)
        if options.simulate is None:  # no framework runs on a simulated GPU
            found += frameworks.measure(gpu, quick=options.quick)
        played = QUICK_PLAYED if options.quick else PLAYED_ROWS
        with open_players(gpu, rounds_per_ms) as players:
            found += measure_played(players, played[: options.count], window, options.rounds)
        asked = experiments.QUICK if options.quick else experiments.EXPERIMENTS
        found += experiments.measure(gpu, rounds_per_ms, asked[: options.count])
        rows = QUICK_ROWS if options.quick else ROWS
        with open_bench(gpu, rounds_per_ms) as bench:
            return found + measure_rows(bench, rows[: options.count], window)


FIGURE = Figure(
    name="silicon",
    summary="what an H100 showed, measured again",
    label="a real GPU, or with --simulate PROFILE a simulated one",
    measure=measure,
    rounds=1,
)
