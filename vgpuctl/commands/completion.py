"""`vgpuctl completion`: what a shell reads to complete verbs, options and their values."""

import click
from click.shell_completion import get_completion_class

_VARIABLE = "_VGPUCTL_COMPLETE"  # by which the script asks us; click makes the name


@click.command(epilog='Example: eval "$(vgpuctl completion bash)"')
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script with which SHELL completes vgpuctl.

    For good: vgpuctl completion bash > /etc/bash_completion.d/vgpuctl
    """
    kind = get_completion_class(shell)
    root = click.get_current_context().find_root().command
    assert kind is not None
    click.echo(kind(root, {}, "vgpuctl", _VARIABLE).source())
