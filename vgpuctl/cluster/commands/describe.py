"""`kubectl vgpu describe`: all that is known of a container's slice or of a GPU, on whatever node.

The facts are those of `vgpuctl describe`, with ``node``. The nodes are searched for the target;
only the one that has it is looked at twice, and asked what its agent says.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from deviceplugin.pages.events import KeptEvent
from deviceplugin.pages.slices import NodeSlices
from deviceplugin.pages.state import AgentReport
from libvgpu.allocation_dirs import AllocationDir, allocation_directory
from libvgpu.errors import UnknownAllocation, VgpuError

from ...commands.describe import ids_among, show, unknown
from ...describe.container import describe_container
from ...describe.gpu import describe_gpu
from ...examples import examples
from ...observe import SeenGpu, gpu_rows
from ...options import output_option
from ...output.facts import Container
from ...render import Row
from ...top.frame import TopGpu
from ...top.rates import Rates, TopRow
from ..listing import say_problems, seen
from ..nodes import NodeAnswer, Nodes, Place, nodes_at
from ..options import place_options

#: Between two looks, of which rates come; longer than an agent shows the same page.
_BETWEEN_S = 0.6


@click.command(epilog=examples("kubectl vgpu describe team-a/train-0"))
@click.argument("target")
@place_options
@output_option
def describe(target: str, place: Place, output: str) -> int:
    """Show all that is known of TARGET, a container's slice or a GPU.

    TARGET is NAMESPACE/POD, NAMESPACE/POD/CONTAINER, an allocation's id (or its beginning), the
    name of a run, a GPU's UUID, or, of one --node, its index.
    """
    with nodes_at(place) as nodes:
        answers = nodes.slices()
        pages = {each.node: each.page for each in answers if each.page is not None}
        is_one = place.node is not None or place.pod is not None
        found = _gpu_of(target, pages, is_one) or _slices_of(target, pages, nodes, answers)
        if found is None:  # who did not answer may have it
            return say_problems(answers)
        node, ids, gpu = found
        facts = _facts(nodes.only(node), node, pages[node], ids, gpu)
    if not facts:
        raise UnknownAllocation(f"{target!r} ended just now", hint="kubectl vgpu ps shows the rest")
    show(facts, output)
    return 0


_Found = tuple[str, Sequence[str], SeenGpu | None]


def _gpu_of(target: str, pages: dict[str, NodeSlices], is_one: bool) -> _Found | None:
    """Returns the node of a GPU, and the GPU."""
    for node, page in pages.items():
        for each in seen(page.gpus):
            if target == each.gpu.uuid or (is_one and target == each.gpu.name):
                return node, (), each
    return None


def _slices_of(
    target: str,
    pages: dict[str, NodeSlices],
    nodes: Nodes,
    answers: Sequence[NodeAnswer[NodeSlices]],
) -> _Found | None:
    """Returns the node of allocations, and their ids; None where one that is silent may have them.

    Raises:
        VgpuError: no node has any; of a pod whose admission failed that says why.
    """
    node_of = {
        each.meta.allocation_id: node for node, page in pages.items() for each in page.slices
    }
    among = [
        AllocationDir(allocation_directory(Path(page.run_dir), each.meta.allocation_id), each.meta)
        for page in pages.values()
        for each in page.slices
    ]
    try:
        ids = ids_among(target, among)
    except UnknownAllocation as error:
        events = [event for told in nodes.events() for event in told.page or ()]
        why = unknown(target, error, events, "these nodes")
        if not any(each.problem for each in answers):
            raise why from None
        click.echo(f"kubectl vgpu: {why.message}", err=True)
        return None
    node = node_of[ids[0]]
    return node, [each for each in ids if node_of[each] == node], None


def _facts(
    node: Nodes, name: str, before: NodeSlices, ids: Sequence[str], gpu: SeenGpu | None
) -> list[Row]:
    rates = Rates()
    rates.look(before.slices, before.clock_s)
    report = _said(node.reports())
    events: Sequence[KeptEvent] = _said(node.events()) or ()
    time.sleep(_BETWEEN_S)
    (answer,) = node.slices()
    if answer.page is None:
        raise VgpuError(f"node {name}: {answer.problem}")
    page = answer.page
    rows = rates.look(page.slices, page.clock_s)
    if gpu is not None:
        status = gpu_rows([gpu], page.slices)[0]
        here = [row for row in rows if row.gpu_uuid == gpu.gpu.uuid]
        return [{**describe_gpu(gpu, status, here, report, events), "node": name}]
    return [{**facts, "node": name} for facts in _containers(page, ids, rows, report, events)]


def _said(answers: Sequence[NodeAnswer[Any]]) -> Any:
    """Returns what the one node said; what it does not say is left out, as without an agent."""
    return answers[0].page


def _containers(
    page: NodeSlices,
    ids: Sequence[str],
    rows: Sequence[TopRow],
    report: AgentReport | None,
    events: Sequence[KeptEvent],
) -> list[Container]:
    gpus = {
        each.gpu.uuid: TopGpu(each.gpu.name, each.gpu.product, each.gpu.memory_bytes)
        for each in seen(page.gpus)
    }
    found = []
    for each in page.slices:
        if each.meta.allocation_id in ids:
            mine = {r.gpu_uuid: r for r in rows if r.allocation_id == each.meta.allocation_id}
            run_dir = Path(page.run_dir)
            found.append(describe_container(each, run_dir, mine, gpus, report, events, page.at))
    return found
