"""``python -m deviceplugin.cleaning``: what the chart's hook runs, once and on each node."""

import json
import logging
import os
import sys
from pathlib import Path
from typing import TextIO

import click

from deviceplugin import log
from deviceplugin.kube.api_client import ApiServer
from deviceplugin.log import event
from libvgpu.errors import VgpuError

from .cluster import Cleaning
from .cluster_calls import ClusterCalls
from .host import HostDirectories, clean, enter_node

_DIRECTORY = click.Path(path_type=Path, file_okay=False)


@click.group(help="Removes what the chart leaves on nodes; the chart's cleanHosts runs it.")
def main() -> None:
    """Sets up the log."""
    log.set_up()


@main.command(help="End the agents, and have every node cleaned on which no pod has a slice.")
@click.option("--release", required=True, help="Name of the Helm release.")
@click.option("--resource-domain", default="nvidia.com", show_default=True)
@click.option("--node-selector", default="", help="Labels of the nodes that agents run on.")
@click.option("--deadline", "deadline_s", type=float, default=240, show_default=True, metavar="S")
@click.option(
    "--node-pod",
    envvar="NODE_POD",
    required=True,
    metavar="JSON",
    help="The pod that cleans a node.",
)
def cluster(
    release: str, resource_domain: str, node_selector: str, deadline_s: float, node_pod: str
) -> None:
    """Ends with status 0 also where nodes were left alone: each has an Event that says why."""
    api = ApiServer.from_environment(os.environ)
    if api is None:
        raise click.UsageError("there is no service account here; it runs in a pod of the chart")
    try:
        template = json.loads(node_pod)
    except ValueError as error:
        raise click.UsageError(f"--node-pod is not JSON: {error}") from error
    name, uid = os.environ.get("POD_NAME", ""), os.environ.get("POD_UID", "")
    owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid}
    pods = ClusterCalls(
        api, release, resource_domain, template, json.dumps(owner) if name and uid else ""
    )
    try:
        outcome = Cleaning(pods, deadline_s).run(node_selector)
    except VgpuError as error:
        click.echo(f"error: {error.message}", err=True)
        sys.exit(1)
    event(logging.INFO, "done", cleaned=len(outcome.cleaned), left=",".join(sorted(outcome.left)))


@main.command(
    help="Remove our directories from the node that this pod is on, if nobody needs them."
)
@click.option("--run-dir", required=True, type=_DIRECTORY)
@click.option("--state-dir", required=True, type=_DIRECTORY)
@click.option("--mps-root", type=_DIRECTORY)
@click.option(
    "--process",
    default="/proc/1",
    show_default=True,
    type=_DIRECTORY,
    help="Whose mounts are the node's.",
)
@click.option(
    "--message-file",
    default="/dev/termination-log",
    show_default=True,
    type=click.File("w", lazy=False),  # the file of this container, not of the node
    help="What is said at the end goes there, too.",
)
def host(
    run_dir: Path, state_dir: Path, mps_root: Path | None, process: Path, message_file: TextIO
) -> None:
    """Ends with status 1 where the node is left alone, and says why."""
    try:
        enter_node(process)
        removed = clean(HostDirectories(run_dir, state_dir, mps_root), process.parent)
    except (VgpuError, OSError) as error:
        said, status = getattr(error, "message", str(error)), 1
    else:
        said, status = " ".join(map(str, removed)) or "nothing was there", 0
    message_file.write(said)
    click.echo(said)
    sys.exit(status)


if __name__ == "__main__":
    main()
