"""``python -m benchmarks.dashboards DIRECTORY [--minutes N]``: see the package."""

import sys
import time
from pathlib import Path
from typing import Any

import click

from libvgpu.errors import VgpuError

from .drawing import Drawn, draw, lines_of
from .prometheus import Prometheus
from .queries import dashboards, legend, targets
from .scene import running_scene

_POINTS = 240
#: What is chosen on top, where all would be too much for one picture.
_CHOSEN = {"slice": {"pod": "notebook|serve|sweep"}}
_ABOUT = "what Prometheus answered (simulated GPUs); drawn by this project, not by Grafana"


def panels_of(
    name: str, dashboard: dict[str, Any], prometheus: Prometheus, begin_s: float, end_s: float
) -> tuple[list[Drawn], list[str]]:
    """Returns a dashboard's panels, and the queries that nothing answered."""
    found, empty = [], []
    for panel in dashboard["panels"]:
        lines = []
        for target in targets(panel, dashboard, _CHOSEN.get(name, {})):
            step_s = max(1, int((end_s - begin_s) / _POINTS))
            answers = prometheus.ask_range(target.query, begin_s, end_s, step_s)
            legends = [legend(target.legend, answer["metric"]) for answer in answers]
            drawn = lines_of(answers, legends, begin_s)
            lines += drawn
            if not drawn:
                empty.append(f"{panel['title']}: {target.query}")
        legends = [line.legend for line in lines]
        if len(set(legends)) < len(legends):
            raise VgpuError(f"{panel['title']} has a legend twice: {sorted(legends)}")
        place = panel["gridPos"]
        found.append(
            Drawn(
                panel["title"],
                panel["fieldConfig"]["defaults"]["unit"],
                (place["x"], place["y"], place["w"], place["h"]),
                lines,
                panel["type"] == "stat",
            )
        )
    return found, empty


@click.command()
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False))
@click.option("--minutes", default=5.0, help="how long the pictures are.", show_default=True)
@click.option(
    "--warm-up",
    "warm_up_s",
    default=150.0,
    show_default=True,
    help="seconds before that, so that rates over five minutes have something to go by.",
)
def main(directory: Path, minutes: float, warm_up_s: float) -> None:
    """Draws what Prometheus answers to the dashboards' queries, a PNG file for each."""
    directory.mkdir(parents=True, exist_ok=True)
    try:
        with running_scene() as scene:
            scene.watch(warm_up_s)
            begin_s = time.time()
            scene.watch(60 * minutes)
            end_s = time.time()
            for name, dashboard in dashboards().items():
                panels, empty = panels_of(name, dashboard, scene.prometheus, begin_s, end_s)
                draw(directory / f"{name}.png", f"{dashboard['title']}: {_ABOUT}", panels)
                for each in empty:
                    print(f"{name}: nothing answers {each}", file=sys.stderr)
    except VgpuError as error:
        raise click.ClickException(error.message) from error


if __name__ == "__main__":
    main()
