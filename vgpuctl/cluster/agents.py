"""Which pod is the agent of which node. Pure."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import quote, urlencode

import msgspec

from libvgpu.decoding import json_decoder
from libvgpu.errors import AllocationRefused, UsageError, VgpuError

NAMESPACE = "vgpu-system"
#: As the chart has it.
SELECTOR = "app.kubernetes.io/name=vgpu,app.kubernetes.io/component=agent"
#: By the agent's ports: where its pages are, and where they were before only its pod had them.
_PAGES, _METRICS = "pages", "metrics"
_PAGE = 500
_SHOWN = 8
_RUNNING = "Running"
_NAME = re.compile("[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?")


class _Meta(msgspec.Struct, rename="camel"):
    name: str
    namespace: str = ""
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None


class _Port(msgspec.Struct, rename="camel"):
    container_port: int
    name: str = ""


class _Container(msgspec.Struct):
    ports: list[_Port] = []


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""
    containers: list[_Container] = []


class _Waiting(msgspec.Struct):
    reason: str = ""


class _State(msgspec.Struct):
    waiting: _Waiting | None = None


class _ContainerStatus(msgspec.Struct):
    state: _State = msgspec.field(default_factory=_State)


class _Status(msgspec.Struct, rename="camel"):
    phase: str = ""
    container_statuses: list[_ContainerStatus] = []


class _Pod(msgspec.Struct):
    metadata: _Meta
    spec: _Spec
    status: _Status = msgspec.field(default_factory=_Status)


class _ListMeta(msgspec.Struct, rename={"more": "continue"}):
    more: str = ""


class _Pods(msgspec.Struct):
    items: list[_Pod]
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)


_POD, _PODS = json_decoder(_Pod), json_decoder(_Pods)


@dataclass(frozen=True, slots=True)
class Agent:
    """The agent of a node.

    Attributes:
        pod: its name.
        node: empty where the pod is on none yet.
        port: of its pages; 0 where the pod names none.
        is_inside: only its pod reaches that port, and so `kubectl port-forward`.
        problem: why it cannot be asked, a phrase; empty where it can.
    """

    namespace: str
    pod: str
    node: str
    port: int
    problem: str = ""
    is_inside: bool = True

    def path(self, page: str) -> tuple[str, str]:
        """Returns the path of the API server to a page, or to the port and what is asked there."""
        pod = f"/api/v1/namespaces/{self.namespace}/pods/{self.pod}"
        # By its number: the API server knows no names of ports here.
        if self.is_inside:
            return f"{pod}/portforward?ports={self.port}", page
        return f"{pod}:{self.port}/proxy{page}", ""


def list_path(namespace: str, more: str = "") -> str:
    """Returns the path of a page of the list of agents.

    Args:
        more: of the page before.
    """
    asked = {"labelSelector": SELECTOR, "limit": str(_PAGE)} | ({"continue": more} if more else {})
    return f"/api/v1/namespaces/{quote(namespace, safe='')}/pods?{urlencode(asked)}"


def agents_of(content: bytes) -> tuple[list[Agent], str]:
    """Returns the agents of a page of the list, and what `list_path` takes for the next one.

    Raises:
        VgpuError: it is no list of pods.
    """
    try:
        pods = _PODS.decode(content)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise VgpuError(f"the API server does not answer with a list of pods: {error}") from None
    # While one agent takes over from another, the node has two: the one that stays counts.
    pods.items.sort(
        key=lambda pod: (
            pod.metadata.deletion_timestamp is not None,
            pod.status.phase != _RUNNING,
            pod.metadata.creation_timestamp,
        )
    )
    found: dict[str, Agent] = {}
    for pod in pods.items:
        agent = _agent(pod)
        found.setdefault(agent.node or agent.pod, agent)
    return list(found.values()), pods.metadata.more


def _agent(pod: _Pod) -> Agent:
    ports = {p.name: p.container_port for c in pod.spec.containers for p in c.ports}
    port = ports.get(_PAGES) or ports.get(_METRICS, 0)
    waiting = [
        each.state.waiting.reason
        for each in pod.status.container_statuses
        if each.state.waiting is not None
    ]
    problem = ""
    if not pod.spec.node_name:
        problem = f"its pod {pod.metadata.name} is on no node yet"
    elif pod.status.phase != _RUNNING:
        problem = f"its agent's pod {pod.metadata.name} is {pod.status.phase or 'not started'}"
    elif waiting:
        problem = f"its agent's pod {pod.metadata.name} waits: {waiting[0]}"
    elif not port:
        problem = f"its agent's pod {pod.metadata.name} has no port called {_PAGES}"
    return Agent(
        pod.metadata.namespace,
        pod.metadata.name,
        pod.spec.node_name,
        port,
        problem,
        is_inside=_PAGES in ports,
    )


def agent_on(node: str, agents: Iterable[Agent], namespace: str) -> Agent:
    """Returns the agent of a node.

    Args:
        namespace: where the agents are, for the message.

    Raises:
        AllocationRefused: it has none; the message names nodes that have.
    """
    known = {agent.node: agent for agent in agents if agent.node}
    if node in known:
        return known[node]
    names = sorted(known)
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    there = f"{', '.join(names[:_SHOWN])}{more}" if names else "none"
    raise AllocationRefused(
        f"node {node} has no agent in namespace {namespace}; nodes that have one: {there}"
    )


def pod_path(name: str, namespace: str) -> str:
    """Returns the path of a pod.

    Args:
        name: NAME or NAMESPACE/NAME.
        namespace: of a name without one.

    Raises:
        UsageError: it has another form.
    """
    parts = name.split("/")
    if len(parts) > 2 or not all(map(_NAME.fullmatch, parts)):
        raise UsageError(f"--pod {name!r} is neither NAME nor NAMESPACE/NAME")
    where, pod = parts if len(parts) == 2 else (namespace, parts[0])
    return f"/api/v1/namespaces/{quote(where, safe='')}/pods/{pod}"


def node_of_pod(content: bytes, name: str) -> str:
    """Returns the node that a pod is on.

    Raises:
        VgpuError: it is on none yet, or this is no pod.
    """
    try:
        pod = _POD.decode(content)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise VgpuError(f"the API server does not answer with a pod: {error}") from None
    if not pod.spec.node_name:
        raise VgpuError(
            f"pod {name} is on no node yet: it is {pod.status.phase or 'new'}",
            hint="kubectl describe pod says why",
        )
    return pod.spec.node_name


def in_order(agents: Iterable[Agent]) -> Sequence[Agent]:
    """Returns agents by the names of their nodes, numbers in them by their size."""
    return sorted(agents, key=lambda agent: _natural(agent.node or agent.pod))


def _natural(name: str) -> list[tuple[bool, int, str]]:
    words: list[str] = []
    for character in name:
        if words and words[-1][-1].isdecimal() == character.isdecimal():
            words[-1] += character
        else:
            words.append(character)
    return [(w.isdecimal(), int(w) if w.isdecimal() else 0, w) for w in words]
