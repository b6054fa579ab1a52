"""`vgpuctl status`: the GPUs of this node and how much of each is given away.

One row per GPU that the driver lists, that a simulated machine of this user has, or that only a
slice still names; MIG devices have rows of their own. ``-o json`` gives a list of objects with
these keys (null: not known):

``version``, ``index`` (of the GPU), ``mig_device`` (its number on the GPU; null of a GPU), ``uuid,
product, source`` (``driver``, ``simulated``, ``limits``: only a slice names it), ``family`` (of its
slices; empty without any), ``concurrency`` (of its slices, too: ``time-slices``, or ``mps``,
clients of one MPS server; the table says the latter behind family vgpu), ``memory_total_bytes``,
``memory_allocated_bytes`` (the limits' sum), ``memory_used_bytes`` (what the slices hold of it),
``memory_unaccounted_bytes`` (of the limits: what only NVML sees, charged too),
``memory_free_bytes`` (that nobody was given), ``core_allocated_percent`` (of the slices' shares;
one of 100 is not capped), ``core_free_percent``, ``modes`` (a list: how the GPU is shared now,
``free``, ``shared``, ``windows``, ``none``), ``containers`` (how many slices), ``health`` (empty:
it is well; else why nothing of it is given; null where no agent tells), ``drains`` (what the GPU
waits for before it is shared as the config says; empty where it waits for nothing, null where no
agent tells).

Behind the table stderr says of each family how much is free and the largest piece of it on one GPU,
since no container is spread over GPUs; and on a node that has several named configs, which is in
force.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import click

from deviceplugin.pages.state import AgentReport
from libvgpu.errors import VgpuError
from libvgpu.sizes import format_size
from libvgpu.slices import read_slices

from ..agent_client import agent_report
from ..examples import examples
from ..node_gpus import seen_gpus
from ..observe import gpu_rows, gpu_state
from ..options import chosen_run_dir, node_dirs_options, output_option
from ..render import SHORT_UUID, Column, Row, print_listing, say, size_column


def _report(run_dir: Path) -> AgentReport | None:
    """Returns what the node's agent says, None where there is none."""
    try:
        return agent_report(run_dir)
    except VgpuError:
        return None


def _uuid(row: Row) -> str:
    return str(row["uuid"])


def _family(row: Row) -> str:
    family = str(row["family"]) or "-"
    under_mps = family == "vgpu" and row["concurrency"] == "mps"
    return family + ", mps" * under_mps + " (drains)" * bool(row["drains"])


def _name(row: Row) -> str:
    if row["index"] is None:
        return "-"
    return str(row["index"]) if row["mig_device"] is None else f"{row['index']}:{row['mig_device']}"


def _health(row: Row) -> str:
    health = row["health"]
    return "-" if health is None else "unhealthy" if health else "ok"


def _modes(row: Row) -> str:
    modes = row["modes"]
    assert isinstance(modes, list)
    return "+".join(modes) or "-"


#: The ranks say what a narrow terminal shows: which GPU, how it is, what of it is given away.
COLUMNS = (
    Column("GPU", _name, right=True),
    Column("UUID", _uuid, rank=3, narrow=lambda row: _uuid(row)[:SHORT_UUID]),
    Column("PRODUCT", lambda row: str(row["product"]) or "-", rank=4),
    Column("SOURCE", lambda row: str(row["source"]), rank=8),
    Column("HEALTH", _health, rank=1),
    Column("FAMILY", _family, rank=1),
    size_column("ALLOCATED", "memory_allocated_bytes", 1),
    size_column("USED", "memory_used_bytes", 2),
    size_column("UNACCOUNTED", "memory_unaccounted_bytes", 7),
    size_column("MEMORY", "memory_total_bytes", 1),
    Column("CORE", lambda row: f"{row['core_allocated_percent']}%", True, 1),
    Column("MODE", _modes, rank=6),
    Column("CONTAINERS", lambda row: str(row["containers"]), True, 5),
)


def fragmentation(rows: Sequence[Row]) -> list[str]:
    """Returns a sentence for each family: what is free in all, and at most on one GPU."""
    said = []
    families = dict.fromkeys(str(row["family"]) for row in rows if row["family"])
    for family in families:
        mine = [row for row in rows if row["family"] == family]
        core = [_number(row, "core_free_percent") for row in mine]
        memory = [_number(row, "memory_free_bytes") for row in mine]
        said.append(
            f"{family}: free are {sum(core)} core and {format_size(sum(memory))} on {len(mine)} "
            f"GPU{'s' * (len(mine) != 1)}, at most {max(core)} core and "
            f"{format_size(max(memory))} on one"
        )
    return said


def _number(row: Row, key: str) -> int:
    value = row[key]
    return value if isinstance(value, int) else 0


@click.command(
    epilog=examples("vgpuctl status", "vgpuctl status -o json | jq '.[].memory_free_bytes'")
)
@node_dirs_options
@output_option
def status(run_dir: Path | None, state_dir: Path, kubelet_dir: Path, output: str) -> None:
    """Show every GPU and how much of it is given away."""
    seen, problem = seen_gpus()
    if problem:
        say(f"vgpuctl: {problem}")
    chosen = chosen_run_dir(run_dir)
    report = _report(chosen)
    slices = read_slices(chosen)
    rows = gpu_rows(seen, slices, partial(gpu_state, report))
    print_listing(rows, COLUMNS, output, "no GPUs and no slices")
    for each in slices:
        if each.limits is None:
            say(f"vgpuctl: {each.meta.allocation_id} is counted nowhere: {each.problem}")
    if output == "table":
        for sentence in fragmentation(rows):
            say(f"vgpuctl: {sentence}")
    if report is not None and report.config.shown:
        say(f"vgpuctl: {report.config.shown}")
