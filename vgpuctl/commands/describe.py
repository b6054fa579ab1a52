"""`vgpuctl describe`: all that is known of a container's slice, or of a GPU.

``-o json`` gives a list of objects: those of a container (``kind`` is ``container``) with its
request, its limits and where each comes from, what it uses and by what, and whether its cap binds;
those of a GPU (``gpu``) with what is given and free, and to whom. `vgpuctl.describe` says their
keys, which do not change without ``version``.
"""

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from deviceplugin.pages.events import KeptEvent
from deviceplugin.pages.state import AgentReport
from deviceplugin.store.event_file import kept_events
from libvgpu.allocation_dirs import AllocationDir
from libvgpu.errors import AllocationRefused, UnknownAllocation, UsageError, VgpuError
from libvgpu.slices import Slice, read_slices, readable_allocations

from ..agent_client import agent_report
from ..examples import examples
from ..node_gpus import seen_gpus
from ..observe import SeenGpu, gpu_rows
from ..options import chosen_run_dir, node_dirs_options, output_option
from ..output.facts import Container, Gpu
from ..targets import find_allocation
from ..top.frame import TopGpu
from ..top.rates import Rates, TopRow

#: Between two looks, of which rates come.
_BETWEEN_S = 0.5
_REFUSALS = 5


def _report(run_dir: Path) -> AgentReport | None:
    try:
        return agent_report(run_dir)
    except VgpuError:
        return None


def _events(state_dir: Path) -> list[KeptEvent]:
    try:
        return kept_events(state_dir)
    except OSError:
        return []  # an ordinary user may not read them


def _two_looks(run_dir: Path) -> tuple[Sequence[Slice], list[TopRow]]:
    rates = Rates()
    rates.look(read_slices(run_dir), time.monotonic())
    time.sleep(_BETWEEN_S)
    slices = read_slices(run_dir)
    return slices, rates.look(slices, time.monotonic())


def _gpu_of(word: str, seen: Sequence[SeenGpu]) -> SeenGpu | None:
    return next((each for each in seen if word in (each.gpu.name, each.gpu.uuid)), None)


def _ids(word: str, run_dir: Path) -> list[str]:
    """Returns the allocations that a word names: of a pod all of its containers'.

    Raises:
        VgpuError: there is none, or the word may mean several.
    """
    return ids_among(word, readable_allocations(run_dir))


def ids_among(word: str, among: Sequence[AllocationDir]) -> list[str]:
    """Returns those of some allocations that a word names; see `_ids`."""
    names = word.split("/")
    if len(names) == 2 and all(names):
        found = [a.meta.allocation_id for a in among if [a.meta.namespace, a.meta.pod] == names]
        if found:
            return found
    return [find_allocation(word, among).meta.allocation_id]


@click.command(
    short_help="Show all that is known of a slice or a GPU.",
    epilog=examples("vgpuctl describe team-a/train-0", "vgpuctl describe 0 -o json"),
)
@click.argument("target")
@node_dirs_options
@output_option
def describe(
    target: str, run_dir: Path | None, state_dir: Path, kubelet_dir: Path, output: str
) -> None:
    """Show all that is known of TARGET, a container's slice or a GPU.

    TARGET is NAMESPACE/POD, NAMESPACE/POD/CONTAINER, an allocation's id (or its beginning), the
    name of a run, or a GPU's index or UUID (0:1 is MIG device 1 of GPU 0).
    """
    chosen = chosen_run_dir(run_dir)
    seen, _ = seen_gpus()
    gpu = _gpu_of(target, seen)
    events = _events(state_dir)
    ids: list[str] = []
    if gpu is None:
        try:
            ids = _ids(target, chosen)
        except UnknownAllocation as error:
            raise unknown(target, error, events) from None
    report = _report(chosen)
    slices, rows = _two_looks(chosen)
    facts: list[Container | Gpu] = []
    if gpu is not None:
        from ..describe.gpu import describe_gpu

        status = gpu_rows([gpu], slices)[0]
        here = [row for row in rows if row.gpu_uuid == gpu.gpu.uuid]
        facts.append(describe_gpu(gpu, status, here, report, events))
    else:
        from ..describe.container import describe_container

        gpus = {
            each.gpu.uuid: TopGpu(each.gpu.name, each.gpu.product, each.gpu.memory_bytes)
            for each in seen
        }
        for each in slices:
            if each.meta.allocation_id in ids:
                mine = {r.gpu_uuid: r for r in rows if r.allocation_id == each.meta.allocation_id}
                facts.append(
                    describe_container(each, chosen, mine, gpus, report, events, time.time())
                )
    if not facts:
        raise UnknownAllocation(f"{target!r} ended just now", hint="vgpuctl ps shows what there is")
    show(facts, output)


def show(facts: Sequence[Mapping[str, Any]], output: str) -> None:
    """Prints facts as ``output`` says, ``table`` (lines for people) or ``json``."""
    if output == "json":
        click.echo(json.dumps(list(facts), indent=2))
        return
    from ..describe.text import lines

    click.echo("\n\n".join("\n".join(lines(each)) for each in facts))


def unknown(
    target: str,
    error: UnknownAllocation,
    events: Sequence[KeptEvent],
    where: str = "this node",
) -> VgpuError:
    """Returns why there is nothing to describe: for a pod whose admission failed that is the
    reason.
    """
    names = target.split("/")
    if len(names) < 2:
        return UsageError(
            f"{target!r} is neither an allocation nor a GPU of {where}",
            hint="ps and status show what there is",
        )
    pod = "/".join(names[:2])
    of_pod = [e for e in events if e.subject == pod or e.subject.startswith(f"{pod}/")]
    refused = [e for e in events if e.reason == "AllocationRefused" and not e.subject]
    last = (of_pod or refused)[-_REFUSALS:]
    if not last:
        return error
    what = "was told:" if of_pod else "is not known. What was refused lately, to whomever:"
    said = "\n".join(f"  {time.ctime(e.at)} {e.reason}: {e.text}" for e in last)
    return AllocationRefused(f"{pod} has no slice, and {what}\n{said}")
