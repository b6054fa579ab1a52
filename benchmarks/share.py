"""How close one tenant comes to its share, over a covering design of what programs do.

A cell is a client and a percentage. Every client is measured once alone without any shim; what is
expected of a cell is its percentage, or what the client takes alone where that is less. The windows
of one round are those of all cells, so that a slow drift of the machine touches each of them.

The design has every level of each factor, and every pair of percentage and waiting, of kernel and
waiting, of blocks and waiting, of blocks and percentage, and all but two of percentage and kernels
below 100 ms (25 % of 20 ms, 90 % of 1 ms). A window of kernels of 100 ms and more is six times as
long, since the edges of a window cut one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .figure import Figure, Measurement, Options
from .plot import draw
from .repeats import (
    LABEL,
    MS,
    ROUNDS,
    START_SECONDS,
    US,
    Lengths,
    Results,
    curves_of,
    judged_errors,
    lengths,
    measure_alone,
    no_value,
    say,
    subjects_of,
    take,
)
from .stage import open_stage
from .tenant_programs import TenantClient, TenantProgram, Window

_ERROR_POINTS = 0.3
_PROCESSES_ERROR_POINTS = 0.6
_DELAY_MS = 30.0
_DELAY_PERCENT = 50
_DELAY_MOST_KERNEL_NS = 1_000_000
FEW, MANY = 132, 16_896


@dataclass(frozen=True, slots=True)
class Cell:
    """A client under a percentage."""

    core_percent: int
    client: TenantClient
    processes: int = 1

    @property
    def title(self) -> str:
        crowd = f", {self.processes} processes" if self.processes > 1 else ""
        return f"{self.core_percent} %, {self.client.title}{crowd}"

    @property
    def most_error_points(self) -> float:
        return _PROCESSES_ERROR_POINTS if self.processes > 1 else _ERROR_POINTS


def _streams(kernel_ns: int, *, sync: bool, blocks: int = FEW) -> TenantClient:
    return TenantClient(kernel_ns, sync=4 if sync else 0, blocks=blocks, streams=4)


CELLS = (
    Cell(10, TenantClient(20 * US)),
    Cell(10, TenantClient(20 * MS, sync=1, blocks=MANY)),
    Cell(10, TenantClient(1 * MS, "graph")),
    Cell(25, TenantClient(1 * MS, sync=1)),
    Cell(25, _streams(20 * US, sync=False, blocks=MANY)),
    Cell(25, TenantClient(200 * MS, blocks=MANY)),
    Cell(50, TenantClient(20 * MS, blocks=MANY)),
    Cell(50, TenantClient(20 * US, sync=1)),
    Cell(50, TenantClient(1 * MS, "memset")),
    Cell(50, TenantClient(1 * MS), processes=2),
    Cell(75, TenantClient(1 * MS, "cooperative")),
    Cell(75, TenantClient(20 * MS)),
    Cell(75, TenantClient(20 * US, "graph", sync=1, blocks=MANY)),
    Cell(90, TenantClient(20 * US, blocks=MANY)),
    Cell(90, _streams(20 * MS, sync=True)),
    Cell(90, TenantClient(200 * MS, sync=1)),
)


def planned_seconds(cells: Sequence[Cell], rounds: int, long: Lengths) -> float:
    """Returns how long the figure takes with our shim alone."""
    extra = long.warm_up_seconds + START_SECONDS
    alone = len({cell.client for cell in cells}) * (long.window_seconds + extra)
    return alone + rounds * sum(long.of(cell.client) + extra for cell in cells)


def summarise(cell: Cell, subject: str, results: Results, alone: float) -> list[Measurement]:
    """Returns the measurements of one cell; without a device, so that made-up windows do too.

    Args:
        cell: what was measured.
        subject: with which library.
        results: the repeats.
        alone: what the client takes of the device without any shim, in percent.
    """
    if results.failure:
        return [no_value(cell.title, subject, "share", "%", results.failure)]
    found = judged_errors(
        cell.title,
        subject,
        "share",
        [window.shares[0] for window in results.windows],
        min(cell.core_percent, alone),
        cell.most_error_points,
    )
    if cell.core_percent == _DELAY_PERCENT and cell.client.kernel_ns <= _DELAY_MOST_KERNEL_NS:
        found.append(_delay(cell, subject, results.windows))
    return found


def _delay(cell: Cell, subject: str, windows: Sequence[Window]) -> Measurement:
    quantity = "time of a launch, p99, worst"
    delays = [window.p99_delay_ns[0] for window in windows]
    known = [delay for delay in delays if delay is not None]
    if len(known) < len(delays):
        return no_value(cell.title, subject, quantity, "ms", "a client did not come to an end")
    worst_ms = round(max(known) / MS, 3)
    return Measurement(cell.title, subject, quantity, "ms", worst_ms, most=_DELAY_MS)


def measure_cells(cells: Sequence[Cell], options: Options) -> list[Measurement]:
    """Measures some cells.

    Raises:
        VgpuError: there is no compiler, or a client fails without any shim.
    """
    long, subjects = lengths(options), subjects_of(options)
    results: Mapping[tuple[Cell, str], Results] = {
        (cell, subject): Results() for cell in cells for subject in subjects
    }
    with open_stage() as stage:
        alone = measure_alone(stage, [cell.client for cell in cells], long)
        for number in range(options.rounds):
            for (cell, subject), kept in results.items():
                say(f"round {number + 1} of {options.rounds}: {cell.title}, {subject}")
                tenants = [TenantProgram(cell.client, cell.core_percent, processes=cell.processes)]
                take(
                    stage, kept, tenants, subjects[subject], long, sampled=options.plot is not None
                )
    found = []
    for (cell, subject), kept in results.items():
        found += summarise(cell, subject, kept, alone[cell.client])
        if options.plot is not None and kept.windows:
            expected = min(cell.core_percent, alone[cell.client])
            curves = curves_of(kept.windows, [subject], [expected])
            draw(options.plot, f"share: {cell.title}, {subject}", LABEL, curves)
    return found


def measure(options: Options) -> list[Measurement]:
    """Takes the figure.

    Raises:
        VgpuError: there is no compiler, or a client fails without any shim.
    """
    return measure_cells(CELLS[: options.count], options)


FIGURE = Figure(
    name="share",
    summary="how close one tenant comes to its share of device time",
    label=LABEL,
    measure=measure,
    rounds=ROUNDS,
)
