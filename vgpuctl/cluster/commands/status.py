"""`kubectl vgpu status`: the GPUs of the nodes and how much of each is given away.

Rows, columns and JSON are those of `vgpuctl status`, with ``node``; GPUs are those that the agent
of the node knows.
"""

import click

from deviceplugin.pages.slices import NodeSlices

from ...commands.status import COLUMNS, fragmentation
from ...examples import examples
from ...observe import GpuState, gpu_rows
from ...options import output_option
from ...render import Row, print_listing, say
from ..listing import NODE_COLUMN, of_node, say_problems, seen
from ..nodes import Place, nodes_at
from ..options import place_options


def status_rows(node: str, page: NodeSlices) -> list[Row]:
    """Returns the rows of a node."""
    told = {gpu.uuid: GpuState(gpu.health, gpu.drains) for gpu in page.gpus}
    well = GpuState("", "")
    rows = gpu_rows(seen(page.gpus), page.slices, lambda uuid: told.get(uuid, well))
    return of_node(node, rows)


@click.command(epilog=examples("kubectl vgpu status --node gpu-1"))
@place_options
@output_option
def status(place: Place, output: str) -> int:
    """Show every GPU of the nodes and how much of it is given away."""
    with nodes_at(place) as nodes:
        answers = nodes.slices()
    rows = [
        row
        for each in answers
        if each.page is not None
        for row in status_rows(each.node, each.page)
    ]
    print_listing(rows, (NODE_COLUMN, *COLUMNS), output, "no GPUs and no slices")
    if output == "table":
        for sentence in fragmentation(rows):
            say(f"kubectl vgpu: {sentence}")
    return say_problems(answers)
