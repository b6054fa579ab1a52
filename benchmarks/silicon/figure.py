"""The figure ``silicon``: what an H100 showed, measured again on a GPU or on the simulated one."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from libvgpu._build import SHIM, build
from libvgpu.errors import VgpuError

from ..figure import Figure, Measurement, Options
from ..gpu import Gpu, real_gpu, simulated_gpu
from ..repeats import say
from . import frameworks, memory
from .bench import Bench, Window, open_bench
from .calls import measure_calls
from .played import measure_played, open_players
from .played_rows import PLAYED_ROWS, QUICK_PLAYED
from .rows import QUICK_ROWS, ROWS, TOTAL_POINTS, Row
from .spin_rate import measure_spin_rate
from .turns import TURN_ROWS, measure_turns

_WARM_UP_SECONDS, _WINDOW_SECONDS = 1.0, 3.0
_QUICK_WARM_UP_SECONDS, _QUICK_SECONDS = 0.5, 1.0


@contextmanager
def _gpu(simulate: str | None) -> Iterator[tuple[Gpu, int]]:
    """Gives the GPU and what a context on it takes; 0: the shim is to measure it."""
    if simulate is None:
        with real_gpu() as real:
            yield real, 0
    else:
        from libvgpu.sim import find_profile  # which needs packages that a real GPU does not

        profile = find_profile(simulate)
        with simulated_gpu(profile) as simulated:
            yield simulated, profile.context_bytes


def judged(row: Row, found: Sequence[float], subject: str) -> list[Measurement]:
    """Returns a row's measurements, each with silicon's value and tolerance as its bar."""
    names = [""] if len(found) == 1 else [f", tenant {n + 1}" for n in range(len(found))]
    measurements = [
        _against(f"{row.name}{name}", subject, "share of bare", value, silicon, row.points)
        for name, value, silicon in zip(names, found, row.silicon, strict=True)
    ]
    if len(found) > 1:
        total = sum(found), sum(row.silicon)
        measurements.append(_against(row.name, subject, "total", *total, TOTAL_POINTS))
    return measurements


def _against(
    case: str, subject: str, quantity: str, value: float, silicon: float, points: float
) -> Measurement:
    return Measurement(
        case, subject, quantity, "%", round(value, 2), silicon=round(silicon, 2), tolerance=points
    )


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
    with _gpu(options.simulate) as (gpu, context_bytes):
        build([SHIM])
        rounds_per_ms = measure_spin_rate(gpu)
        say("calls")
        found = measure_calls(gpu, rounds_per_ms)
        found += measure_turns(gpu, rounds_per_ms, window, TURN_ROWS[: options.count])
        say("memory")
        found += memory.measure(gpu, context_bytes)
        if options.simulate is None:  # no framework runs on a simulated GPU
            found += frameworks.measure(gpu, context_bytes, quick=options.quick)
        played = QUICK_PLAYED if options.quick else PLAYED_ROWS
        with open_players(gpu, context_bytes, rounds_per_ms) as players:
            found += measure_played(players, played[: options.count], window, options.rounds)
        rows = QUICK_ROWS if options.quick else ROWS
        with open_bench(gpu, context_bytes, rounds_per_ms) as bench:
            return found + measure_rows(bench, rows[: options.count], window)


FIGURE = Figure(
    name="silicon",
    summary="what an H100 showed, measured again",
    label="a real GPU, or with --simulate PROFILE a simulated one",
    measure=measure,
    rounds=1,
)
