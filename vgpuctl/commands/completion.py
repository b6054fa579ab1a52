"""`vgpuctl completion`: what a shell reads to complete verbs, options and their values."""

import click
from click.shell_completion import get_completion_class

from ..examples import examples

_VARIABLE = "_VGPUCTL_COMPLETE"  # by which the script asks us; click makes the name


@click.command(
    epilog=examples(
        "vgpuctl completion bash > /etc/bash_completion.d/vgpuctl",
        "vgpuctl completion fish | source",
    )
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script with which SHELL completes vgpuctl.

    For one bash or zsh alone: eval "$(vgpuctl completion bash)"
    """
    kind = get_completion_class(shell)
    root = click.get_current_context().find_root().command
    assert kind is not None
    click.echo(kind(root, {}, "vgpuctl", _VARIABLE).source())
