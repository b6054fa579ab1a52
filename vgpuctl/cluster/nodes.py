"""Asks the agents of many nodes for a page at once."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from deviceplugin.pages.events import EVENTS, KeptEvent
from deviceplugin.pages.slices import NodeSlices, read_page
from deviceplugin.pages.state import STATE, AgentReport
from libvgpu.errors import UsageError, VgpuError

from ..progress import Progress
from .agents import (
    NAMESPACE,
    Agent,
    agent_on,
    agents_of,
    in_order,
    list_path,
    node_of_pod,
    pod_path,
)
from .kubectl_calls import current_namespace
from .kubectl_proxy import ApiReader, api_reader
from .refusals import KUBECTL_HINT, ApiRefusal, NoAnswer

PROGRAM = "kubectl vgpu"
_MOST_AT_ONCE = 32
_SLICES, _STATE, _EVENTS = "/v1/slices", "/v1/state", "/v1/events"
_NOT_FOUND = 404

_Page = TypeVar("_Page")


@dataclass(frozen=True, slots=True)
class Place:
    """What a command line says of where to look.

    Attributes:
        node: the one that is wanted; None: see ``pod``.
        pod: whose node is wanted, NAME or NAMESPACE/NAME; None: all nodes.
        namespace: of a pod that is named without one; None: kubectl's.
        agent_namespace: where the agents are.
        kubectl: the program and its options.
        timeout_s: that one node may take.
    """

    node: str | None = None
    pod: str | None = None
    namespace: str | None = None
    agent_namespace: str = NAMESPACE
    kubectl: Sequence[str] = ("kubectl",)
    timeout_s: float = 5.0


@dataclass(frozen=True, slots=True)
class NodeAnswer(Generic[_Page]):
    """What one node said.

    Attributes:
        node: its name; that of the agent's pod where this is on none.
        page: None where it said nothing.
        problem: why not, a sentence's end; empty where it did.
    """

    node: str
    page: _Page | None
    problem: str = ""


class Nodes:
    """The nodes that a command is for."""

    def __init__(self, reader: ApiReader, place: Place, agents: Sequence[Agent] = ()) -> None:
        """Asks nothing yet."""
        self._reader, self._place, self._agents = reader, place, agents

    def find(self) -> None:
        """Asks the API server for the agents there are now.

        Raises:
            VgpuError: there are none, or it does not say.
        """
        self._agents = _wanted(self._reader, self._place)

    def read(self, path: str) -> bytes:
        """Returns what another path of the API server has.

        Raises:
            VgpuError: it has nothing, or may not be read.
        """
        return _got(self._reader, path)

    def slices(self) -> list[NodeAnswer[NodeSlices]]:
        """Returns what each node holds, in the order of their names.

        Raises:
            ApiRefusal: nobody can be asked, and why.
        """
        return self._ask(_SLICES, read_page)

    def reports(self) -> list[NodeAnswer[AgentReport]]:
        """Returns what each agent says of itself, as `slices` does."""
        return self._ask(_STATE, STATE.decode)

    def events(self) -> list[NodeAnswer[list[KeptEvent]]]:
        """Returns what each agent told pods and its Node, as `slices` does."""
        return self._ask(_EVENTS, EVENTS.decode)

    def only(self, node: str) -> "Nodes":
        """Returns one of them."""
        mine = [agent for agent in self._agents if agent.node == node]
        return Nodes(self._reader, self._place, mine)

    def _ask(self, page: str, read: Callable[[bytes], _Page]) -> list[NodeAnswer[_Page]]:
        def answer(agent: Agent) -> NodeAnswer[_Page]:
            node = agent.node or agent.pod
            if agent.problem:
                return NodeAnswer(node, None, agent.problem)
            try:
                return NodeAnswer(node, read(self._reader.get(*agent.path(page))))
            except ApiRefusal:
                raise
            except NoAnswer as error:
                return NodeAnswer(node, None, _why(agent, error))
            except VgpuError as error:
                hint = f"; {error.hint}" if error.hint else ""
                return NodeAnswer(node, None, f"{error.message}{hint}")
            except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
                known = "is of a form that this kubectl-vgpu does not know"
                hint = "use the kubectl-vgpu of the agent's version"
                return NodeAnswer(node, None, f"its page {page} {known}: {error}; {hint}")

        with ThreadPoolExecutor(min(_MOST_AT_ONCE, len(self._agents))) as threads:
            return list(threads.map(answer, self._agents))


def _why(agent: Agent, error: NoAnswer) -> str:
    where = f"{agent.namespace}/{agent.pod}"
    if error.status == _NOT_FOUND:
        return f"its agent {where} has no such page, because it is older: {error.message}"
    return f"its agent {where} does not answer: {error.message}"


@contextlib.contextmanager
def nodes_at(place: Place, is_silent: bool = False) -> Iterator[Nodes]:
    """Gives the nodes of a command line, and says so on stderr while that lasts.

    Args:
        is_silent: nothing is said.

    Raises:
        VgpuError: there are none, or the API server does not say which.
    """
    if place.node is not None and place.pod is not None:
        raise UsageError("--node and --pod exclude each other: a pod is on one node")
    with api_reader(place.kubectl, place.timeout_s) as reader:
        nodes = Nodes(reader, place)
        with contextlib.ExitStack() as until_read:
            if not is_silent:
                until_read.enter_context(Progress(program=PROGRAM)).begin(
                    "reading the agents' pages"
                )
            nodes.find()
            yield nodes


def _wanted(reader: ApiReader, place: Place) -> Sequence[Agent]:
    node = place.node
    if place.pod is not None:
        namespace = place.namespace or ""
        if not namespace and "/" not in place.pod:
            namespace = current_namespace(place.kubectl)
        node = node_of_pod(_got(reader, pod_path(place.pod, namespace)), place.pod)
    agents = _all_agents(reader, place.agent_namespace)
    if node is not None:
        return [agent_on(node, agents, place.agent_namespace)]
    if not agents:
        raise VgpuError(
            f"there is no agent's pod in namespace {place.agent_namespace}",
            hint="name the chart's namespace with --agent-namespace",
        )
    return in_order(agents)


def _all_agents(reader: ApiReader, namespace: str) -> list[Agent]:
    found, more = agents_of(_got(reader, list_path(namespace)))
    while more:
        rest, more = agents_of(_got(reader, list_path(namespace, more)))
        found += rest
    return found


def _got(reader: ApiReader, path: str) -> bytes:
    """Returns what a path has; without it nothing can be shown.

    Raises:
        VgpuError: it has nothing.
    """
    try:
        return reader.get(path)
    except NoAnswer as error:
        raise VgpuError(f"the API server: {error.message}", hint=KUBECTL_HINT) from None
