"""Options of all verbs of `kubectl vgpu`: which nodes, and how the API server is reached."""

import functools
import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import click

from .agents import NAMESPACE
from .nodes import Place

_Command = TypeVar("_Command", bound=Callable[..., Any])
_CHOICE = (
    click.option("--node", metavar="NODE", help="Only this node."),
    click.option("--pod", metavar="[NAMESPACE/]NAME", help="Only the node that this pod is on."),
    click.option("--all-nodes", is_flag=True, help="All nodes that have an agent. [default]"),
)
_REACH = (
    click.option(
        "--agent-namespace",
        default=NAMESPACE,
        envvar="VGPU_AGENT_NAMESPACE",
        show_default=True,
        help="Where the agents are; also VGPU_AGENT_NAMESPACE.",
    ),
    click.option(
        "--timeout",
        type=click.FloatRange(0.1, 600),
        default=5.0,
        show_default=True,
        metavar="SECONDS",
        help="How long a node may take to answer.",
    ),
    click.option("--context", metavar="NAME", help="Context of the kubeconfig, as in kubectl."),
    click.option("--kubeconfig", metavar="FILE", help="As in kubectl."),
    click.option("--as", "as_user", metavar="USER", help="Ask as this user, as in kubectl."),
)


def reach_options(command: _Command) -> Callable[..., Any]:
    """Adds the options of a command that is for all nodes, as ``place: Place``."""

    @functools.wraps(command)
    def with_place(
        agent_namespace: str,
        timeout: float,
        context: str | None,
        kubeconfig: str | None,
        as_user: str | None,
        **rest: Any,
    ) -> Any:
        said = {"context": context, "kubeconfig": kubeconfig, "as": as_user}
        kubectl = [f"--{name}={value}" for name, value in said.items() if value is not None]
        place = Place(
            agent_namespace=agent_namespace, kubectl=("kubectl", *kubectl), timeout_s=timeout
        )
        return command(place=place, **rest)

    for option in reversed(_REACH):
        with_place = option(with_place)
    return with_place


def place_options(command: _Command) -> Callable[..., Any]:
    """Adds the options, which nodes among them, as ``place: Place``.

    A ``namespace`` that the command has as well is that of a pod named without one.
    """
    takes_namespace = "namespace" in inspect.signature(command).parameters

    @functools.wraps(command)
    def with_nodes(
        node: str | None, pod: str | None, all_nodes: bool, place: Place, **rest: Any
    ) -> Any:
        if all_nodes and (node is not None or pod is not None):
            raise click.UsageError("--all-nodes excludes --node and --pod")
        namespace = rest.get("namespace") if takes_namespace else None
        return command(place=replace(place, node=node, pod=pod, namespace=namespace), **rest)

    found = reach_options(with_nodes)
    for option in reversed(_CHOICE):
        found = option(found)
    return found
