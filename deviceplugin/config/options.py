"""Options of the command line that say where the config is, the same for agent and MPS runner.

Names and variables are those of NVIDIA's device plugin and its config manager, where they have one.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from libvgpu.errors import UsageError

from .chosen import NODE_LABEL, Fallback, Selection, parse_fallbacks

_Command = TypeVar("_Command", bound=Callable[..., Any])
DEFAULT_STATE_DIR = Path("/var/lib/vgpu")

# Whether it may be used is said by who uses it.
DIRECTORY = click.Path(path_type=Path, file_okay=False, readable=False)


def config_option(command: _Command) -> _Command:
    """Adds ``--config`` as ``config: Path``, a file or a directory."""
    return click.option(
        "--config",
        "--config-file",
        envvar=["CONFIG_FILE_SRCDIR", "CONFIG_FILE"],
        required=True,
        type=click.Path(path_type=Path),
        help="The config file, or a directory with one file for each named config.",
    )(command)


def state_dir_option(command: _Command) -> _Command:
    """Adds ``--state-dir`` as ``state_dir: Path``."""
    return click.option(
        "--state-dir",
        envvar="VGPU_STATE_DIR",
        default=str(DEFAULT_STATE_DIR),
        show_default=True,
        type=DIRECTORY,
        help="What the agent keeps over a reboot, such as the config that it last accepted.",
    )(command)


def _fallbacks(context: click.Context, option: click.Parameter, value: str) -> tuple[Fallback, ...]:
    try:
        return parse_fallbacks(value)
    except UsageError as error:
        raise click.BadParameter(error.message, context, option) from None


def selection_options(command: _Command) -> _Command:
    """Adds how a named config is chosen, as `selection_of` takes it."""
    for option in (
        click.option(
            "--fallback-strategies",
            envvar="FALLBACK_STRATEGIES",
            default=",".join(Selection().fallbacks),
            show_default=True,
            callback=_fallbacks,
            metavar="LIST",
            help="For a directory, without label and default: named (the config called default), "
            "single (the only one), empty (no config at all), in this order.",
        ),
        click.option(
            "--default-config",
            envvar="DEFAULT_CONFIG",
            default="",
            metavar="NAME",
            help="For a directory: the config of a node without the label.",
        ),
        click.option(
            "--node-label",
            envvar="NODE_LABEL",
            default=NODE_LABEL,
            show_default=True,
            metavar="KEY",
            help="For a directory: the Node's label that names its config.",
        ),
    ):
        command = option(command)
    return command


def selection_of(
    node_label: str, default_config: str, fallback_strategies: tuple[Fallback, ...]
) -> Selection:
    """Returns what `selection_options` were given.

    Raises:
        UsageError: the label has no name.
    """
    if not node_label:
        raise UsageError(f"--node-label is empty; it must be a label's key such as {NODE_LABEL}")
    return Selection(node_label, default_config, fallback_strategies)
