"""`vgpuctl top`: the slices of this node on a live screen.

One row for each slice and GPU: memory and share next to their limits, each with a line of the last
looks; how much of the time its launches were held back; turns a second on a contended GPU; refused
allocations (in brackets those since the look before). Above them a line for each GPU.

With ``--once`` two looks, ``--interval`` apart, give one frame on stdout.
"""

import shutil
import sys
import time
from pathlib import Path

import click

from libvgpu.errors import InventoryError, UsageError
from libvgpu.slices import read_slices

from ..examples import examples
from ..node_gpus import seen_gpus
from ..options import chosen_run_dir, node_dirs_options
from ..top.frame import TopGpu, Wanted
from ..top.options import SORTS, screen_options
from ..top.rates import Rates, TopRow

#: A pipe has no width.
_PIPE_WIDTH = 200


def _gpus() -> dict[str, TopGpu]:
    """Returns the GPUs that are known; what a slice alone names is shown by its UUID."""
    try:
        seen, _ = seen_gpus()
    except InventoryError:
        return {}
    found = {}
    for each in seen:
        gpu = each.gpu
        number = "" if gpu.mig_number is None else f":{gpu.mig_number}"
        found[gpu.uuid] = TopGpu(f"{gpu.index}{number}", gpu.product, gpu.memory_bytes)
    return found


@click.command(epilog=examples("vgpuctl top --sort memory --filter team-a", "vgpuctl top --once"))
@node_dirs_options
@screen_options(0.1, 1.0)
def top(
    run_dir: Path | None,
    state_dir: Path,
    kubelet_dir: Path,
    once: bool,
    interval: float,
    sort: str,
    text: str,
) -> None:
    """Watch every slice on a live screen.

    Keys: q quits; n, g, m, s, w, r sort by name, GPU, memory, share, held time, refusals, and the
    other way round when typed again; / filters; space holds the screen; arrows scroll.
    """
    chosen = chosen_run_dir(run_dir)
    rates, wanted = Rates(), Wanted(SORTS[sort], text=text)

    def look() -> list[TopRow]:
        return rates.look(read_slices(chosen), time.monotonic())

    from ..top import screen

    if once:
        look()
        time.sleep(interval)
        width = frame_width()
        click.echo(screen.once(look(), _gpus(), wanted, width))
        return
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("top needs a terminal on stdin and stdout; use --once for a file or pipe")
    screen.TopScreen(look, _gpus(), f"vgpuctl top  {chosen}", interval, wanted).run()


def frame_width() -> int:
    """Returns how wide a frame may be: as the terminal, else wide enough for all columns."""
    return shutil.get_terminal_size((_PIPE_WIDTH, 0)).columns
