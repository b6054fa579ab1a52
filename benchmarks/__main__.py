"""``python -m benchmarks list | run NAME… [--json FILE] [--shim PATH]``.

Figures go to stdout, talk to stderr. Exit status 0 when every measurement was taken (those
that need a tool which is not there are said to be missing), 1 when one failed, 2 for wrong usage.
A bar that is missed is told, below the figure, and changes no status: it was measured.
"""

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from libvgpu.errors import UsageError, VgpuError
from vgpuctl.render import Column, Row, print_listing

from .figure import Figure, Measurement, Options, describe_bar, is_missed, judge, to_json
from .markdown import read_earlier, table
from .plot import require_plotting

#: name -> module; imported when run or listed.
FIGURES = {
    "hooks": "benchmarks.hooks",
    "memory-race": "benchmarks.memory_race",
    "crash": "benchmarks.crash",
    "simulator": "benchmarks.simulator",
    "share": "benchmarks.share",
    "share-contended": "benchmarks.share_contended",
    "traces": "benchmarks.playback",
    "allocate": "benchmarks.allocate",
    "reload": "benchmarks.config_reload",
    "silicon": "benchmarks.silicon.figure",
}


def load_figure(name: str) -> Figure:
    """Returns a figure by name.

    Raises:
        UsageError: there is none; the message says which there are.
    """
    if name not in FIGURES:
        raise UsageError(f"figure {name!r} does not exist; there are: {', '.join(FIGURES)}")
    figure = importlib.import_module(FIGURES[name]).FIGURE
    assert isinstance(figure, Figure)
    return figure


def _number(row: Row) -> str:
    value, low, high = row["value"], row["low"], row["high"]
    if not isinstance(value, int | float):
        return f"not measured: {row['note']}"
    if low == high:
        return f"{value:g}"
    return f"{value:g}  ({low:g} to {high:g})"


def _bar(row: Row) -> str:
    return f"{row['bar']} MISSED" if row["missed"] else str(row["bar"])


_COLUMNS = (
    Column("CASE", lambda row: str(row["case"])),
    Column("WITH", lambda row: str(row["subject"])),
    Column("QUANTITY", lambda row: str(row["quantity"])),
    Column("MEDIAN (QUARTILES)", _number),
    Column("UNIT", lambda row: str(row["unit"])),
)
_BAR = Column("BAR", _bar)


def _row(measurement: Measurement) -> Row:
    row = {name: getattr(measurement, name) for name in Measurement.__slots__}
    return row | {"bar": describe_bar(measurement), "missed": is_missed(measurement)}


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """Measure the figures that the docs quote."""


@cli.command("list")
def list_figures() -> None:
    """List the figures."""
    for name in FIGURES:
        figure = load_figure(name)
        click.echo(f"{name:15} {figure.summary} [{figure.label}]")


@cli.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME…")
@click.option(
    "--json",
    "json_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Also write everything measured to this file.",
)
@click.option(
    "--markdown",
    "markdown_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Also write everything measured to this file as a table.",
)
@click.option(
    "--earlier",
    "earlier_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="What --json wrote in an earlier run: a column of that table.",
)
@click.option(
    "--shim",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Measure this preload library too, in the same run.",
)
@click.option(
    "--rounds",
    type=click.IntRange(1, 1000),
    help="How often each measurement is repeated; the figure's own number without it.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0.5),
    help="How long a figure that lasts is taken; its own length without it.",
)
@click.option(
    "--count",
    type=click.IntRange(min=1),
    help="How many of what a figure counts; its own number without it.",
)
@click.option(
    "--plot",
    type=click.Path(path_type=Path, file_okay=False),
    help="Draw pictures (PNG) into this directory, where a figure has any. Needs matplotlib.",
)
@click.option(
    "--simulate",
    metavar="PROFILE",
    help="Take a figure of real GPUs on a simulated one, for example h100.",
)
@click.option("--quick", is_flag=True, help="Take shorter windows where a figure has any.")
def run(
    names: tuple[str, ...],
    json_file: Path | None,
    markdown_file: Path | None,
    earlier_file: Path | None,
    shim: Path | None,
    rounds: int | None,
    seconds: float | None,
    count: int | None,
    plot: Path | None,
    simulate: str | None,
    quick: bool,
) -> int:
    """Measure figures by NAME."""
    figures = [load_figure(name) for name in names]
    if plot is not None:
        require_plotting()
    if earlier_file is not None and markdown_file is None:
        raise UsageError(
            f"--earlier {earlier_file} is a column of a table: give --markdown FILE with it"
        )
    earlier = read_earlier(earlier_file) if earlier_file is not None else None
    results = []
    for figure in figures:
        click.echo(f"{figure.name}: measuring ({figure.label})", err=True)
        options = Options(
            shim.absolute() if shim else None,
            rounds or figure.rounds,
            seconds,
            count,
            plot,
            simulate,
            quick,
        )
        measurements = figure.measure(options)
        results.append((figure, measurements))
        click.echo(f"{figure.name}: {figure.summary} [{figure.label}]")
        rows = [_row(m) for m in measurements]
        columns = (*_COLUMNS, _BAR) if any(row["bar"] for row in rows) else _COLUMNS
        print_listing(rows, columns, "table", "nothing measured")
        for sentence in judge(measurements):
            click.echo(sentence)
    if markdown_file is not None:
        everything = [each for _, found in results for each in found]
        markdown_file.write_text(table(everything, earlier))
    if json_file is not None:
        json_file.write_text(to_json(results))
    failed = any(m.value is None and not m.needs_tool for _, found in results for m in found)
    return 1 if failed else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command line and returns its exit status."""
    try:
        result = cli.main(args=arguments, prog_name="python -m benchmarks", standalone_mode=False)
    except VgpuError as error:
        hint = f"\nhint: {error.hint}" if error.hint else ""
        click.echo(f"benchmarks: {error.message}{hint}", err=True)
        return error.exit_status
    except click.ClickException as error:
        click.echo(f"benchmarks: {error.format_message()}", err=True)
        return error.exit_code
    return result if isinstance(result, int) else 0


if __name__ == "__main__":
    sys.exit(main())
