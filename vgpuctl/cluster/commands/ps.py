"""`kubectl vgpu ps`: who holds which slice on which node, and what they really use.

Rows, columns and JSON are those of `vgpuctl ps`, with ``node``. A node that does not answer is
named on stderr, the others are shown, and the exit status is 1.
"""

import click

from ...commands.ps import COLUMNS, WIDE, is_wanted
from ...examples import examples
from ...observe import process_rows
from ...options import output_option
from ...render import print_listing
from ..listing import NODE_COLUMN, of_node, say_problems
from ..nodes import Place, nodes_at
from ..options import place_options


@click.command(epilog=examples("kubectl vgpu ps --pod team-a/train-0"))
@place_options
@click.option("-n", "--namespace", help="Only slices of a namespace.")
@click.option("--gpu", metavar="UUID", help="Only those on one GPU; the UUID's beginning will do.")
@click.option("-w", "--wide", is_flag=True, help="More columns.")
@output_option
def ps(place: Place, namespace: str | None, gpu: str | None, wide: bool, output: str) -> int:
    """Show every slice of the nodes and the processes in it."""
    with nodes_at(place) as nodes:
        answers = nodes.slices()
    rows = [
        row
        for answer in answers
        if answer.page is not None
        for row in of_node(answer.node, process_rows(answer.page.slices))
        if is_wanted(row, namespace, None, gpu)
    ]
    columns = (NODE_COLUMN, *COLUMNS, *(WIDE if wide else ()))
    print_listing(rows, columns, output, "no matching slices")
    return say_problems(answers)
