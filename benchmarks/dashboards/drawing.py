"""One picture a dashboard, of what Prometheus answered; matplotlib draws it."""

import importlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_DOTS_PER_INCH = 80
_PANEL_INCHES = (6.4, 2.3)
_COLUMNS = 24  # of Grafana's grid
_COLOURS, _STYLES = 10, ("-", "--", ":")
#: Base of each unit of Grafana's, and its prefixes from the smallest.
_SCALES = {
    "bytes": (1024.0, 0, ("B", "KiB", "MiB", "GiB", "TiB")),
    "short": (1000.0, 0, ("", "k", "M", "G")),
    "ops": (1000.0, 0, ("/s", "k/s", "M/s")),
    "s": (1000.0, -2, ("µs", "ms", "s")),
    "percentunit": (100.0, -1, ("%",)),
}


@dataclass(frozen=True, slots=True)
class Line:
    """One series of a panel."""

    legend: str
    seconds: Sequence[float]
    values: Sequence[float]


@dataclass(frozen=True, slots=True)
class Drawn:
    """One panel.

    Attributes:
        unit: of Grafana's.
        place: x, y, width and height in Grafana's grid.
        is_number: only the last value is shown.
    """

    title: str
    unit: str
    place: tuple[int, int, int, int]
    lines: Sequence[Line]
    is_number: bool


def scale(unit: str, most: float) -> tuple[float, str]:
    """Returns what values are divided by, and the name of that, for values up to some size."""
    base, first, names = _SCALES[unit]
    for power, name in reversed(list(enumerate(names, first))):
        if most >= base**power:
            return float(base**power), name
    return float(base**first), names[0]


def draw(path: Path, title: str, panels: Sequence[Drawn]) -> None:
    """Draws a dashboard into a PNG file."""
    figures = importlib.import_module("matplotlib.figure")
    tickers = importlib.import_module("matplotlib.ticker")
    rows = sorted({panel.place[1] for panel in panels})
    width, height = _PANEL_INCHES
    figure = figures.Figure(
        figsize=(2 * width, height * len(rows) + 0.4), dpi=_DOTS_PER_INCH, layout="constrained"
    )
    figure.suptitle(title, fontsize=11, fontweight="bold")
    axes = figure.subplots(len(rows), 2, squeeze=False)
    for row in axes:
        for each in row:
            each.set_axis_off()
    for panel in panels:
        x, y, *_ = panel.place
        _panel(axes[rows.index(y)][2 * x // _COLUMNS], panel, tickers)
    figure.savefig(path, format="png", metadata={"Software": None})
    _to_palette(path)


def _panel(axes: Any, panel: Drawn, tickers: Any) -> None:
    axes.set_axis_on()
    axes.set_title(panel.title, fontsize=8.5, loc="left")
    size, name = scale(panel.unit, max((max(line.values) for line in panel.lines), default=0.0))
    if panel.is_number:
        axes.set_xticks([])
        axes.set_yticks([])
        text = "  ".join(f"{line.values[-1] / size:.4g} {name}".strip() for line in panel.lines)
        axes.text(0.5, 0.5, text, fontsize=26, ha="center", va="center", transform=axes.transAxes)
        return
    for number, line in enumerate(panel.lines):
        values = [value / size for value in line.values]
        style = _STYLES[number // _COLOURS % len(_STYLES)]
        axes.plot(
            line.seconds,
            values,
            style,
            label=line.legend,
            color=f"C{number % _COLOURS}",
            linewidth=1.2,
        )
    if not any(any(line.values) for line in panel.lines):
        axes.set_ylim(-0.05, 1)
    else:
        axes.set_ylim(bottom=0)
    axes.tick_params(labelsize=7)
    axes.grid(alpha=0.3)
    axes.yaxis.set_major_formatter(tickers.FuncFormatter(lambda v, _: f"{v:g} {name}".strip()))
    axes.xaxis.set_major_locator(tickers.MultipleLocator(60))
    axes.xaxis.set_major_formatter(
        tickers.FuncFormatter(lambda v, _: f"{int(v) // 60}:{int(v) % 60:02}")
    )
    if panel.lines:
        axes.legend(
            fontsize=6,
            loc="center left",
            bbox_to_anchor=(1.0, 0.5),
            frameon=False,
            handlelength=1.2,
        )


def _to_palette(path: Path) -> None:
    """Makes a picture a third of its size: a palette is enough for lines."""
    images = importlib.import_module("PIL.Image")
    with images.open(path) as image:
        flat = image.convert("RGB").quantize(colors=128, method=images.Quantize.MEDIANCUT)
    flat.save(path, optimize=True)


def lines_of(
    answers: Sequence[Mapping[str, Any]], legends: Sequence[str], begin_s: float
) -> list[Line]:
    """Returns the series of one answer, in the order of their legends.

    Args:
        begin_s: wall-clock time that is 0 in the picture.
    """
    found = []
    for answer, legend in zip(answers, legends, strict=True):
        points = [(at - begin_s, float(value)) for at, value in answer["values"]]
        points = [(at, value) for at, value in points if math.isfinite(value)]
        if points:
            found.append(Line(legend, *zip(*points, strict=True)))
    return sorted(found, key=lambda line: line.legend)
