"""`vgpuctl config`: the node agent's config file, checked without an agent."""

from pathlib import Path

import click

from libvgpu.errors import ConfigError


@click.group()
def config() -> None:
    """Check config files of the node agent."""


@config.command()
def schema() -> None:
    """Print the JSON Schema of the config file."""
    import msgspec

    from deviceplugin.config.json_schema import json_schema

    click.echo(msgspec.json.format(msgspec.json.encode(json_schema())).decode())


@config.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--on-node", is_flag=True, help="Also check it against the GPUs of this node.")
def validate(file: Path, on_node: bool) -> None:
    """Check FILE as the node agent would; exit status 2 where it would be rejected.

    Of a directory of named configs each is checked.
    """
    from deviceplugin.config.source import config_names

    if not file.is_dir():
        _validate(file, on_node)
        return
    names = sorted(config_names(file))
    if not names:
        raise ConfigError(f"{file} has no config; it must have one file for each named config")
    for name in names:
        _validate(file / name, on_node)


def _validate(file: Path, on_node: bool) -> None:
    from deviceplugin.config.loading import load_config

    found = load_config(file)
    if on_node:
        from deviceplugin.inventory.nvml import NvmlInventory
        from deviceplugin.policy.layout import lay_out

        lay_out(found, NvmlInventory().gpus())
    click.echo(
        f"{file}: good: {len(found.shares)} sharing.fractional and {len(found.rules)} limits "
        "entries"
    )
    for wish in found.not_served:
        click.echo(f"vgpuctl: {file}: {wish} is accepted and not served yet", err=True)
