"""`vgpuctl config`: the node agent's config, checked without an agent or shown as it counts.

``config show -o json`` gives a list of objects (`vgpuctl.output.rows.ConfigShowRow`).
"""

import json
from collections.abc import Sequence
from pathlib import Path

import click

from deviceplugin.model.agent_config import AgentConfig
from deviceplugin.pages.config import ConfigValue
from libvgpu.errors import ConfigError

from ..agent_client import config_in_force
from ..config_files import config_texts
from ..config_summary import yields
from ..examples import examples
from ..options import chosen_run_dir, node_dirs_options, output_option, state_dir_option
from ..output.rows import ConfigShowRow
from ..render import OUTPUT_VERSION, Column, print_listing, say


@click.group(
    short_help="Check configs of the node agent, show the one in force.",
    epilog=examples("vgpuctl config validate config.yaml", "vgpuctl config show --changed"),
)
def config() -> None:
    """Check config files of the node agent, show the config in force."""


@config.command(epilog=examples("vgpuctl config schema > config.schema.json"))
def schema() -> None:
    """Print the JSON Schema of the config file."""
    from deviceplugin.config.json_schema import json_schema
    from libvgpu.json_rows import to_rows

    click.echo(to_rows(json_schema()), nl=False)


def _shown(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


_COLUMNS = (
    Column("KEY", lambda row: str(row["key"])),
    Column("VALUE", lambda row: _shown(row["value"])),
    Column("FROM", lambda row: str(row["origin"])),
)


@config.command(
    epilog=examples("vgpuctl config show --changed", "vgpuctl config show config.yaml -o json")
)
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False), required=False)
@click.option("--changed", is_flag=True, help="Without the values that are defaults.")
@node_dirs_options
@output_option
def show(
    file: Path | None,
    changed: bool,
    run_dir: Path | None,
    state_dir: Path,
    kubelet_dir: Path,
    output: str,
) -> None:
    """Show every value of the config in force and where it comes from.

    With FILE that of a file, without the agent's flags.
    """
    from deviceplugin.config.effective import DEFAULT, effective
    from deviceplugin.config.loading import load_config

    values: Sequence[ConfigValue]
    if file is not None:
        values = effective(load_config(file))
    else:
        found = config_in_force(chosen_run_dir(run_dir))
        values = found.values
        name = f", config {found.name}" if found.name else ""
        kept = ", kept from before, since that is bad now" if found.is_kept else ""
        click.echo(f"vgpuctl: {found.path}{name}{kept}", err=True)
    rows: list[ConfigShowRow] = [
        {
            "version": OUTPUT_VERSION,
            "key": each.key,
            "value": each.value,
            "origin": each.origin,
        }
        for each in values
        if not changed or each.origin != DEFAULT
    ]
    print_listing(rows, _COLUMNS, output, "every value is a default")


@config.command(
    short_help="Check a config as the node agent would.",
    epilog=examples(
        "vgpuctl config validate config.yaml",
        "vgpuctl config validate --on-node config.yaml",
        "helm template deploy/chart -s templates/config.yaml | vgpuctl config validate -",
    ),
)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--on-node", is_flag=True, help="Also check it against the GPUs of this node.")
@state_dir_option
def validate(file: Path, on_node: bool, state_dir: Path) -> None:
    """Check FILE as the node agent would; exit status 2 where it would be rejected.

    FILE may be - for stdin, a directory of named configs or the manifest of a ConfigMap. Of a
    directory or a ConfigMap each config is checked.
    """
    from deviceplugin.config.problems import problems

    refused: list[ConfigError] = []
    for name, text in config_texts(file):
        found = problems(text, name)
        refused += found
        if not found:
            _tell_good(name, text, on_node, state_dir)
    for problem in refused[:-1]:
        click.echo(f"vgpuctl: {problem.message}", err=True)
        if problem.hint:
            click.echo(f"hint: {problem.hint}", err=True)
    if refused:
        raise refused[-1]


def _tell_good(name: str, text: str, on_node: bool, state_dir: Path) -> None:
    from deviceplugin.config.loading import parse_config

    found = parse_config(text, name)
    if on_node:
        _tell_of_gpus(found, name, state_dir)
    click.echo(f"{name}: good")
    rows = list(yields(found))
    widest = max((len(section) for section, _ in rows), default=0)
    for section, what in rows:
        click.echo(f"  {section:<{widest}}  {what}")


def _tell_of_gpus(found: AgentConfig, name: str, state_dir: Path) -> None:
    from deviceplugin.policy.devices.layout import lay_out

    from ..node_gpus import gpus_meant_by

    known, sick = gpus_meant_by(found, state_dir)
    layout = lay_out(found, known.here, lost=known.lost)
    for bad in sick:
        say(f"vgpuctl: {name}: nothing of GPU {bad} is offered now: {bad.reason}")
    for held in layout.withheld:
        part = f":{held.gpu.mig.number}" if held.gpu.mig else ""
        gpu = f"GPU {held.gpu.index}{part} ({held.gpu.uuid})"
        say(f"vgpuctl: {name}: nothing of {gpu} is offered: {held.reason}")
