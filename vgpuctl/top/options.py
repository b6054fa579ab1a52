"""The options of a live screen, which `vgpuctl top` and `kubectl vgpu top` have in common."""

from collections.abc import Callable
from typing import Any

import click

from .frame import SortKey

SORTS = {key.name.lower(): key for key in SortKey}


def screen_options(
    least_s: float, usual_s: float
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Returns a decorator that adds ``--once``, ``--interval``, ``--sort`` and ``--filter``.

    Args:
        least_s: the shortest interval between two looks, in seconds.
        usual_s: the interval where none is asked for.
    """
    options = (
        click.option("--once", is_flag=True, help="Print one frame and end."),
        click.option(
            "--interval",
            type=click.FloatRange(least_s, 60),
            default=usual_s,
            show_default=True,
            metavar="SECONDS",
            help="Between two looks.",
        ),
        click.option(
            "--sort",
            type=click.Choice(list(SORTS)),
            default=SortKey.SHARE.name.lower(),
            show_default=True,
            help="What the rows are ordered by; keys change it.",
        ),
        click.option(
            "--filter", "text", default="", help="Only rows with this text; / changes it."
        ),
    )

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):  # each goes before those that were added
            command = option(command)
        return command

    return add
