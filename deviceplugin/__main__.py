"""``python -m deviceplugin``: the node agent's command line."""

import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from deviceplugin.config.chosen import Fallback
from deviceplugin.config.options import (
    DIRECTORY,
    config_option,
    selection_of,
    selection_options,
    state_dir_option,
)
from deviceplugin.config.overrides import FLAG_NAMES, FlagName, Kind, said_flags
from deviceplugin.inventory.nvml import NvmlInventory
from deviceplugin.serving.listeners import split_address
from libvgpu.allocation_dirs import default_run_dir
from libvgpu.errors import UsageError, VgpuError

from . import log
from .agent import PAGES, run
from .heap import return_freed_memory
from .settings import AgentSettings
from .stopping import stop_on_signals


def _with_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the options of NVIDIA's plugin; a boolean one may stand without a value, as there."""
    for flag in reversed(FLAG_NAMES):
        alone: dict[str, Any] = {}
        if flag.kind is Kind.BOOLEAN:
            alone = {"is_flag": False, "flag_value": "true"}
        command = click.option(
            *flag.options,
            _parameter(flag),
            multiple=True,
            metavar=flag.kind.name,
            help=f"{flag.key} of the config file [env: {', '.join(flag.variables)}]",
            **alone,
        )(command)
    return command


def _parameter(flag: FlagName) -> str:
    return flag.key.replace(".", "_").lower()


def _kubelet_dir(socket_path: Path) -> Path:
    """Returns the kubelet's directory by its socket, as NVIDIA's plugin is told of it."""
    directory = socket_path.absolute().parent
    if directory.name != "device-plugins":
        raise UsageError(
            f"--kubelet-socket is {socket_path}, allowed is a path that ends in "
            "device-plugins/kubelet.sock; podresources is looked for next to that directory"
        )
    return directory.parent


@click.command(help="Hands out slices of this node's GPUs to the kubelet and keeps their limits.")
@config_option
@selection_options
@click.option(
    "--kubelet-dir",
    envvar="VGPU_KUBELET_DIR",
    default="/var/lib/kubelet",
    show_default=True,
    type=DIRECTORY,
)
@click.option(
    "--kubelet-socket",
    envvar="KUBELET_SOCKET",
    type=click.Path(path_type=Path),
    help="The kubelet's socket for device plugins, instead of --kubelet-dir.",
)
@state_dir_option
@click.option("--run-dir", envvar="VGPU_RUN_DIR", type=DIRECTORY, help="[default: /run/vgpu]")
@click.option(
    "--metrics-address",
    default=":9446",
    show_default=True,
    help="HOST:PORT of /metrics, /healthz and /readyz.",
)
@click.option(
    "--pages-address",
    default="",
    help="HOST:PORT of the pages for kubectl vgpu, which tell of all tenants.  [default: none]",
)
@click.option("--node-name", envvar="NODE_NAME", default=socket.gethostname)
@click.option(
    "--spawn-mps/--no-spawn-mps",
    default=True,
    show_default=True,
    help="Start the MPS daemons if nobody runs them.",
)
@click.option(
    "--publish/--no-publish",
    default=True,
    show_default=True,
    help="Tell schedulers what the node has and what of it is held, by a Lease of its namespace.",
)
@click.option(
    "--host-root",
    envvar="VGPU_HOST_ROOT",
    default="",
    help="Where the node's root is seen.  [default: /proc/1/root in a container]",
)
@_with_flags
def main(  # noqa: PLR0913 - a parameter for each option
    config: Path,
    node_label: str,
    default_config: str,
    fallback_strategies: tuple[Fallback, ...],
    kubelet_dir: Path,
    kubelet_socket: Path | None,
    state_dir: Path,
    run_dir: Path | None,
    metrics_address: str,
    pages_address: str,
    node_name: str,
    spawn_mps: bool,
    publish: bool,
    host_root: str,
    **flags: tuple[str, ...],
) -> None:
    """Runs until SIGTERM or SIGINT; exit status 2 for a wrong config, 1 for a refusal."""
    return_freed_memory()
    log.set_up()
    stop = stop_on_signals()
    try:
        split_address(metrics_address)
        if pages_address:
            split_address(pages_address, PAGES)
        given = {flag.options[0]: flags[_parameter(flag)] for flag in FLAG_NAMES}
        if kubelet_socket is not None:
            kubelet_dir = _kubelet_dir(kubelet_socket)
        run(
            AgentSettings(
                config=config,
                kubelet_dir=kubelet_dir.absolute(),
                state_dir=state_dir.absolute(),
                run_dir=(run_dir or default_run_dir()).absolute(),
                metrics_address=metrics_address,
                pages_address=pages_address,
                node_name=node_name or os.uname().nodename,
                spawn_mps=spawn_mps,
                watch_health=True,
                host_root=host_root,
                publish=publish,
                said=said_flags(given, os.environ),
                selection=selection_of(node_label, default_config, fallback_strategies),
            ),
            NvmlInventory(),
            stop,
        )
    except VgpuError as error:
        hint = f" (hint: {error.hint})" if error.hint else ""
        click.echo(f"deviceplugin: {error.message}{hint}", err=True)
        sys.exit(error.exit_status)


if __name__ == "__main__":
    main()
