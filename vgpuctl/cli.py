"""The group of all verbs. A verb's module is imported when it is typed, not before.

`vgpuctl ps` answers in a fraction of a second because it never imports what `demo` needs.
"""

import difflib
import importlib
import os
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from .examples import examples

_Group = TypeVar("_Group", bound=Callable[..., Any])

#: Set by --debug, for `__main__`.
DEBUG_VARIABLE = "VGPUCTL_DEBUG"
#: verb -> module and attribute of its click command, in the order of `--help`.
VERBS = {
    "run": ("vgpuctl.commands.run", "run"),
    "describe": ("vgpuctl.commands.describe", "describe"),
    "ps": ("vgpuctl.commands.ps", "ps"),
    "top": ("vgpuctl.commands.top", "top"),
    "status": ("vgpuctl.commands.status", "status"),
    "events": ("vgpuctl.commands.events", "events"),
    "metrics": ("vgpuctl.commands.metrics", "metrics"),
    "set": ("vgpuctl.commands.set", "set_verb"),
    "doctor": ("vgpuctl.commands.doctor", "doctor"),
    "support-bundle": ("vgpuctl.commands.support_bundle", "support_bundle"),
    "config": ("vgpuctl.commands.config", "config"),
    "mig": ("vgpuctl.commands.mig", "mig"),
    "sim": ("vgpuctl.commands.sim", "sim"),
    "completion": ("vgpuctl.commands.completion", "completion"),
    "demo": ("vgpuctl.commands.demo", "demo"),
}


class LazyGroup(click.Group):
    """A group whose commands live in modules that are imported by name.

    Attributes:
        verbs: module and attribute of each verb's command, in the order of `--help`.
    """

    verbs: Mapping[str, tuple[str, str]] = VERBS

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Returns the verbs in the order they are documented in."""
        return list(self.verbs)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Returns the command of a verb, or None where there is no such verb."""
        if cmd_name not in self.verbs:
            return None
        module, attribute = self.verbs[cmd_name]
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Returns the command that the arguments name, and what is left of them.

        Raises:
            click.UsageError: there is none, with the verb that was perhaps meant.
        """
        word = args[0]
        near = difflib.get_close_matches(word, self.verbs, 1)
        if near and word not in self.verbs and not ctx.resilient_parsing:
            raise click.UsageError(f"no such command {word!r}; did you mean {near[0]!r}?", ctx)
        return super().resolve_command(ctx, args)


def _show_version(ctx: click.Context, parameter: click.Parameter, wanted: bool) -> None:
    if not wanted or ctx.resilient_parsing:
        return
    from importlib import metadata

    try:
        click.echo(f"{ctx.info_name} {metadata.version('vgpu')}")
    except metadata.PackageNotFoundError:
        click.echo(f"{ctx.info_name} of a source tree that is not installed")
    ctx.exit()


def _debug(ctx: click.Context, parameter: click.Parameter, wanted: bool) -> None:
    if wanted:
        os.environ[DEBUG_VARIABLE] = "1"


def common_options(group: _Group) -> _Group:
    """Adds ``--version`` and ``--debug``, which stand before a verb."""
    group = click.option(
        "--debug",
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_debug,
        help="Show where in the program an unforeseen error happened.",
    )(group)
    return click.option(
        "--version",
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_show_version,
        help="Show the version and exit.",
    )(group)


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=examples(
        "vgpuctl ps",
        "vgpuctl run --simulate h100 --memory 1GiB --core 50 -- python train.py",
        "vgpuctl doctor",
    ),
)
@common_options
def cli() -> None:
    """Hard slices of an NVIDIA GPU: run a program under one, see who holds what.

    Exit status: 0 good, 1 refused or unhealthy, 2 wrong usage; run and sim run exit with the status
    of their command.
    """
