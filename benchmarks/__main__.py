"""``python -m benchmarks list | run NAME… [--json FILE] [--shim PATH]``.

Figures go to stdout, talk to stderr. Exit status 0 when every measurement was taken (those
that need a tool which is not there are said to be missing), 1 when one failed, 2 for wrong usage.
A bar that is missed is told, below the figure, and changes no status: it was measured. Only where
a figure is about what must hold (`chaos`), the status is 1.

What is imported here, and by a figure that is taken on a real GPU, is in Python itself: such a
machine may have nothing else.
"""

import importlib
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from libvgpu.errors import UsageError, VgpuError

from . import own_time
from .command_line import RunArguments, parse
from .figure import Figure, Options, is_missed, judge, to_json
from .listing import listing
from .markdown import read_earlier, table
from .plot import require_plotting
from .simulated_gpu import simulated_gpu

#: name -> module; imported when run or listed.
FIGURES = {
    "hooks": "benchmarks.hooks",
    "memory-race": "benchmarks.memory_race",
    "crash": "benchmarks.crash",
    "simulator": "benchmarks.simulator",
    "share": "benchmarks.share",
    "share-contended": "benchmarks.share_contended",
    "traces": "benchmarks.playback",
    "programs": "benchmarks.programs",
    "costs": "benchmarks.costs",
    "allocate": "benchmarks.allocate",
    "reload": "benchmarks.config_reload",
    "extender": "benchmarks.extender",
    "crowd": "benchmarks.crowd",
    "cli": "benchmarks.cli",
    "chaos": "benchmarks.chaos.figure",
    "silicon": "benchmarks.silicon.figure",
}
_OURS = ("benchmarks", "libvgpu", "deviceplugin", "vgpuctl")


@contextmanager
def _lack_named() -> Iterator[None]:
    """Says in words that a package is missing. A missing module of the project is a fault."""
    try:
        yield
    except ModuleNotFoundError as error:
        name = error.name or str(error)
        if name.partition(".")[0] in _OURS and name != "libvgpu._native":
            raise
        raise VgpuError(
            f"this needs the module {name}, which {sys.executable} does not have",
            hint="make setup installs everything; only silicon needs no package, on a real GPU "
            "and with --simulate h100",
        ) from error


def load_figure(name: str) -> Figure:
    """Returns a figure by name.

    Raises:
        UsageError: there is none; the message says which there are.
        VgpuError: it needs a package that is not there.
    """
    if name not in FIGURES:
        raise UsageError(f"figure {name!r} does not exist; there are: {', '.join(FIGURES)}")
    with _lack_named():
        figure = importlib.import_module(FIGURES[name]).FIGURE
    assert isinstance(figure, Figure)
    return figure


def _list_figures() -> None:
    for name in FIGURES:
        try:
            figure = load_figure(name)
        except VgpuError as error:
            print(f"{name:15} {error.message}")
        else:
            print(f"{name:15} {figure.summary} [{figure.label}]")


def _run(asked: RunArguments, arguments: Sequence[str]) -> int:
    figures = [load_figure(name) for name in asked.names]
    of_own_time = [each.name for each in figures if each.has_own_time or asked.simulate]
    if of_own_time and not own_time.is_on():
        if len(of_own_time) < len(figures):
            names = ", ".join(of_own_time)
            raise UsageError(f"what has a time of its own is taken in a run of its own: {names}")
        with _lack_named(), simulated_gpu(asked.simulate) as environment:
            return own_time.run(arguments, environment)
    if asked.plot is not None:
        require_plotting()
    if asked.earlier is not None and asked.markdown is None:
        raise UsageError(
            f"--earlier {asked.earlier} is a column of a table: give --markdown FILE with it"
        )
    earlier = read_earlier(asked.earlier) if asked.earlier is not None else None
    options = Options(
        asked.shim.absolute() if asked.shim else None,
        0,
        asked.seconds,
        asked.count,
        asked.plot,
        asked.simulate,
        asked.quick,
        asked.seed,
    )
    results = []
    for figure in figures:
        print(f"{figure.name}: measuring ({figure.label})", file=sys.stderr, flush=True)
        with _lack_named():
            measurements = figure.measure(replace(options, rounds=asked.rounds or figure.rounds))
        results.append((figure, measurements))
        print(f"{figure.name}: {figure.summary} [{figure.label}]")
        print(listing(measurements), end="")
        for sentence in judge(measurements):
            print(sentence)
    if asked.markdown is not None:
        everything = [each for _, found in results for each in found]
        asked.markdown.write_text(table(everything, earlier))
    if asked.json is not None:
        asked.json.write_text(to_json(results))
    failed = any(
        (m.value is None and not m.needs_tool) or (figure.must_hold and is_missed(m))
        for figure, found in results
        for m in found
    )
    return 1 if failed else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command line and returns its exit status."""
    try:
        arguments = sys.argv[1:] if arguments is None else arguments
        asked = parse(arguments)
        if asked is None:
            _list_figures()
            return 0
        return _run(asked, arguments)
    except VgpuError as error:
        hint = f"\nhint: {error.hint}" if error.hint else ""
        print(f"benchmarks: {error.message}{hint}", file=sys.stderr)
        return error.exit_status


if __name__ == "__main__":
    sys.exit(main())
