"""`vgpuctl mig`: into which MIG devices GPUs are cut, held against the agent's config, and changed.

The agent never cuts a GPU by itself. `apply` does what the config's ``mig`` says, GPU by GPU, and
leaves alone a GPU of which a container has something: as far as the agent tells, and the driver
refuses the rest.
"""

from pathlib import Path

import click

from deviceplugin.pages.state import AgentReport
from libvgpu.errors import InventoryError, UsageError

from ..agent_client import AgentUnreachable, agent_report
from ..examples import examples
from ..node_gpus import gpus_meant_by
from ..options import chosen_run_dir, run_dir_option, state_dir_option


@click.group(epilog=examples("vgpuctl mig apply --dry-run config.yaml"))
def mig() -> None:
    """Compare and change into which MIG devices GPUs are cut."""


@mig.command(
    short_help="Cut the GPUs of this node as a config says.",
    epilog=examples("vgpuctl mig apply --dry-run config.yaml", "vgpuctl mig apply config.yaml"),
)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--dry-run", is_flag=True, help="Only say what differs; exit status 1 if it does.")
@run_dir_option
@state_dir_option
def apply(file: Path, dry_run: bool, run_dir: Path | None, state_dir: Path) -> None:
    """Cut the GPUs of this node as the mig entries of the config FILE say."""
    from deviceplugin.config.loading import load_config
    from deviceplugin.policy.devices.mig_layout import mig_differences, profiles_of

    config = load_config(file)
    if not config.mig_layouts:
        raise UsageError(f"{file} has no mig entries, so there is nothing to apply")
    known, _ = gpus_meant_by(config, state_dir)
    differences = mig_differences(config.mig_layouts, known.here)
    if not differences:
        click.echo("every GPU is as the config says")
        return
    report = _report(chosen_run_dir(run_dir))
    failed = False
    for each in differences:
        click.echo(f"GPU {each.gpu.index} ({each.gpu.uuid}): {each}")
        problem = each.problem
        if not problem and not dry_run:
            parts = [each.gpu.uuid, *(part.uuid for part in each.gpu.mig_devices)]
            problem = _in_use(report, parts) or _cut(
                each.gpu.uuid, profiles_of(each.gpu), each.wanted
            )
        if problem:
            click.echo(f"vgpuctl: GPU {each.gpu.index} is left as it is: {problem}", err=True)
        failed = failed or dry_run or bool(problem)
    if failed:
        raise SystemExit(1)


def _report(run_dir: Path) -> AgentReport | None:
    try:
        return agent_report(run_dir)
    except AgentUnreachable as error:
        if error.denied:
            raise
        return None  # nobody gives anything of these GPUs


def _in_use(report: AgentReport | None, uuids: list[str]) -> str:
    """Returns who has something of a GPU, empty where nobody does."""
    if report is None:
        return ""
    for allocation in report.allocations:
        if any(device.gpu in uuids for device in allocation.devices):
            return f"{allocation.owner} has a slice of it (allocation {allocation.allocation})"
    for device in report.devices:
        if device.id.partition("::")[0] in uuids:
            return f"{device.owner or 'a container'} has {device.id} of {device.resource}"
    return ""


def _cut(uuid: str, before: tuple[str, ...], wanted: tuple[str, ...]) -> str:
    """Cuts a GPU; returns why that failed, empty where it did not."""
    from deviceplugin.inventory.mig_changes import cut

    try:
        cut(uuid, before, wanted, lambda step: click.echo(f"  {step}"))
    except InventoryError as error:
        return error.message
    return ""
