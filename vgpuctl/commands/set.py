"""`vgpuctl set`: changes the limits of a container, or of a `vgpuctl run`, while it runs.

What is set holds until ``--clear``, before the rules of the agent's config; each value by itself.
It lowers, and raises only where the config allows it (``allowRaise: true`` in the rule that matches
the container) and the GPU has that much unallocated. A slice of `vgpuctl run` needs no agent; it
may rise as far as a new `vgpuctl run` could ask.

``-o json`` gives a list of objects, three for each GPU of the slice, with the keys ``version,
allocation, owner`` (the container, empty for `vgpuctl run`), ``gpu_uuid, value`` (``memory_bytes``,
``core_percent`` or ``compute``), ``old, new`` (null where the family has no such value), ``changed,
pending`` (true: it holds only in processes that start later, as MPS has it). Exit status: 0 it
holds, 1 it was refused, 2 wrong usage.
"""

import contextlib
from pathlib import Path
from typing import get_args

import click

from deviceplugin.model.overrides import Override
from deviceplugin.pages.changes import ChangedLimits
from libvgpu import ownership
from libvgpu.errors import InventoryError, UsageError
from libvgpu.limits import ComputeMode
from libvgpu.sizes import format_size, parse_size
from libvgpu.slices import readable_allocations

from ..examples import examples
from ..fitting import BEFORE_NAMES
from ..observe import LEFT_OVER
from ..options import chosen_run_dir, compute_option, node_dirs_options, output_option
from ..output.rows import LimitName, SetRow
from ..render import OUTPUT_VERSION, SHORT_UUID, Column, Row, print_listing
from ..run.requests import parse_core
from ..targets import find_allocation


def _shown(row: Row, key: str) -> str:
    value = row[key]
    if value is None:
        return "-"
    if row["value"] == "memory_bytes":
        assert isinstance(value, int)
        return format_size(value)
    if row["value"] != "core_percent":
        return str(value)
    return f"{value}%" if value else LEFT_OVER


def _when(row: Row) -> str:
    if not row["changed"]:
        return "as before"
    return "pending: when its processes start again" if row["pending"] else "now"


COLUMNS = (
    Column("ALLOCATION", lambda row: str(row["allocation"])),
    Column("OWNER", lambda row: str(row["owner"] or "-"), is_name=True),
    Column("GPU", lambda row: str(row["gpu_uuid"])[:SHORT_UUID], rank=2),
    Column("VALUE", lambda row: str(row["value"]).partition("_")[0]),
    Column("OLD", lambda row: _shown(row, "old"), right=True),
    Column("NEW", lambda row: _shown(row, "new"), right=True),
    Column("HOLDS", _when, rank=BEFORE_NAMES),
)
_VALUES: tuple[LimitName, ...] = get_args(LimitName)  # in this order


def change_rows(change: ChangedLimits) -> list[SetRow]:
    """Returns one row per GPU and value of what a change did."""
    return [
        {
            "version": OUTPUT_VERSION,
            "allocation": change.allocation,
            "owner": change.owner,
            "gpu_uuid": device.gpu_uuid,
            "value": value,
            "old": getattr(device.old, value),
            "new": getattr(device.new, value),
            "changed": getattr(device.old, value) != getattr(device.new, value),
            "pending": value.partition("_")[0] in device.pending,
        }
        for device in change.devices
        for value in _VALUES
    ]


def _memory_of(uuid: str) -> int | None:
    from vgpuctl import gpu_choice

    seen = [
        gpu
        for machine in gpu_choice.simulated_machines()
        for gpu in gpu_choice.gpus_of_machine(machine)
    ]
    with contextlib.suppress(InventoryError):  # no driver here; it may be a simulated GPU
        seen += gpu_choice.gpus_of_driver()
    return next((gpu.memory_bytes for gpu in seen if gpu.uuid == uuid), None)


def _changed(run_dir: Path, word: str, override: Override | None) -> ChangedLimits:
    """Sets values of an allocation, or takes back what was set."""
    allocation = find_allocation(word, readable_allocations(run_dir))
    allocation_id = allocation.meta.allocation_id
    if allocation.meta.source != ownership.SOURCE:
        from .. import agent_client

        return agent_client.set_override(run_dir, allocation_id, override)
    from deviceplugin.policy.limits.changes import changed_limits

    from ..run import limits as run_limits

    if override is None:
        change = run_limits.clear_limits(run_dir, allocation, _memory_of)
    else:
        change = run_limits.set_limits(run_dir, allocation, override, _memory_of)
    return changed_limits(allocation_id, change)


@click.command(
    "set",
    epilog=examples(
        "vgpuctl set team-a/train-0 --core 20 --memory 6GiB",
        "vgpuctl set team-a/train-0 --clear",
    ),
)
@click.argument("allocation")
@click.option("--core", metavar="PERCENT", help="Share of each GPU's compute, 1 to 100.")
@click.option("--memory", metavar="SIZE", help="Memory limit on each GPU, for example 6GiB.")
@compute_option("How the share is held; off needs allowRaise.")
@click.option("--clear", is_flag=True, help="Go back to what rules and request say.")
@node_dirs_options
@output_option
def set_verb(  # noqa: PLR0913 - a parameter for each option
    allocation: str,
    core: str | None,
    memory: str | None,
    compute: ComputeMode | None,
    clear: bool,
    run_dir: Path | None,
    state_dir: Path,
    kubelet_dir: Path,
    output: str,
) -> None:
    """Change the limits of ALLOCATION while it runs.

    ALLOCATION is an id as vgpuctl ps shows it (or its beginning), the name of a run,
    NAMESPACE/POD or NAMESPACE/POD/CONTAINER.
    """
    override = Override(
        None if core is None else parse_core(core),
        None if memory is None else parse_size(memory, "memory"),
        compute,
    )
    if clear and override != Override():
        raise UsageError("--clear takes back all values: give it alone, then set new ones")
    if not clear and override == Override():
        raise UsageError("nothing to set: give --core, --memory or --compute, or --clear")
    change = _changed(chosen_run_dir(run_dir), allocation, None if clear else override)
    print_listing(change_rows(change), COLUMNS, output, "no GPU in this slice")
