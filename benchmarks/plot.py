"""Pictures of shares over time, one PNG a cell. matplotlib draws them and is optional."""

import importlib
import importlib.util
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from libvgpu.errors import UsageError

_INCHES = (9, 4)
_DOTS_PER_INCH = 100


@dataclass(frozen=True, slots=True)
class Curve:
    """The share of one tenant in one repeat.

    Attributes:
        tenant: which one, from 0: curves of one tenant have one colour.
        label: what the tenant is.
        seconds: ends of the intervals, from the beginning of the window.
        share_percent: of each interval.
        expected_percent: drawn as a line, where one number is expected.
    """

    tenant: int
    label: str
    seconds: tuple[float, ...]
    share_percent: tuple[float, ...]
    expected_percent: float | None


def require_plotting() -> None:
    """Raises UsageError when matplotlib is not installed."""
    if importlib.util.find_spec("matplotlib") is None:
        raise UsageError(
            "--plot needs matplotlib, which is not installed",
            hint="pip install 'vgpu[plot]', or leave --plot out",
        )


def file_name(title: str) -> str:
    """Returns a title as the name of a PNG file."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower().replace("µ", "u")).strip("-") + ".png"


def draw(directory: Path, title: str, label: str, curves: Sequence[Curve]) -> Path:
    """Draws the curves of one cell and returns the file.

    Args:
        directory: made if it is not there.
        title: of the cell; also names the file.
        label: where the numbers come from.
        curves: of every tenant and repeat.

    Raises:
        UsageError: matplotlib is missing, or the directory cannot be written.
    """
    require_plotting()
    # No window system: the file format's own canvas draws.
    figures = importlib.import_module("matplotlib.figure")
    figure = figures.Figure(figsize=_INCHES, dpi=_DOTS_PER_INCH)
    axes = figure.add_subplot()
    labelled: set[int] = set()
    for curve in curves:
        colour = f"C{curve.tenant % 10}"
        name = None if curve.tenant in labelled else curve.label
        axes.plot(curve.seconds, curve.share_percent, color=colour, label=name, linewidth=0.8)
        if name is not None and curve.expected_percent is not None:
            axes.axhline(curve.expected_percent, color=colour, linestyle="--", linewidth=0.8)
        labelled.add(curve.tenant)
    axes.set_ylim(0, 105)
    axes.set_xlabel("s")
    axes.set_ylabel("share of the device, %")
    axes.set_title(f"{title} [{label}]")
    axes.grid(alpha=0.3)
    axes.legend(loc="upper right")
    path = directory / file_name(title)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, format="png")
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error
    return path
