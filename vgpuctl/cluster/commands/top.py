"""`kubectl vgpu top`: the slices of the nodes on a live screen.

The screen, its keys and its columns are those of `vgpuctl top`, with the node of each slice. Rates
are of the time that passed on the node between two of its pages, so neither the way to it nor a
wrong clock changes them. What nodes do not answer is said at the foot; the pods of the agents are
looked for again then, since one may have taken over from another.
"""

import sys
import time
from collections.abc import Sequence
from dataclasses import replace

import click

from deviceplugin.pages.slices import NodeSlices
from libvgpu.errors import UsageError

from ...commands.top import frame_width
from ...examples import examples
from ...top.frame import TopGpu, Wanted
from ...top.options import SORTS, screen_options
from ...top.rates import Rates, TopRow
from ..listing import say_problems, seen
from ..nodes import NodeAnswer, Nodes, Place, nodes_at
from ..options import place_options

_MOST_NAMED = 3


class _Looks:
    """What was seen of the nodes so far.

    Attributes:
        gpus: by UUID.
        answers: of the last look.
    """

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._rates: dict[str, Rates] = {}
        self.gpus: dict[str, TopGpu] = {}
        self.answers: Sequence[NodeAnswer[NodeSlices]] = ()

    def look(self) -> list[TopRow]:
        """Returns a row for each slice and GPU of the nodes that answer."""
        if any(answer.problem for answer in self.answers):
            self._nodes.find()
        self.answers = self._nodes.slices()
        return [row for answer in self.answers for row in self._rows(answer)]

    def _rows(self, answer: NodeAnswer[NodeSlices]) -> list[TopRow]:
        page, node = answer.page, answer.node
        if page is None:
            return []
        for each in seen(page.gpus):
            gpu = each.gpu
            self.gpus[gpu.uuid] = TopGpu(gpu.name, gpu.product, gpu.memory_bytes, node)
        rows = self._rates.setdefault(node, Rates()).look(page.slices, page.clock_s)
        return [replace(row, node=node) for row in rows]

    def missing(self) -> str:
        """Says which nodes did not answer the last look."""
        silent = [answer.node for answer in self.answers if answer.problem]
        if not silent:
            return ""
        more = f" and {len(silent) - _MOST_NAMED} more" if len(silent) > _MOST_NAMED else ""
        return f"no answer of {', '.join(silent[:_MOST_NAMED])}{more}"


@click.command(epilog=examples("kubectl vgpu top --node gpu-1"))
@place_options
@screen_options(0.6, 2.0)
def top(place: Place, once: bool, interval: float, sort: str, text: str) -> int:
    """Watch every slice of the nodes on a live screen.

    Keys are those of vgpuctl top: q quits; n, g, m, s, w, r sort; / filters; space holds the
    screen; arrows scroll.
    """
    if not once and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("top needs a terminal on stdin and stdout; use --once for a file or pipe")
    from ...top import screen

    wanted = Wanted(SORTS[sort], text=text)
    with nodes_at(place, is_silent=True) as nodes:
        looks = _Looks(nodes)
        if once:
            looks.look()
            time.sleep(interval)
            rows = looks.look()
            click.echo(screen.once(rows, looks.gpus, wanted, frame_width()))
            return say_problems(looks.answers)
        title = f"kubectl vgpu top  {place.node or place.pod or 'all nodes'}"
        screen.TopScreen(looks.look, looks.gpus, title, interval, wanted, looks.missing).run()
    return 0
