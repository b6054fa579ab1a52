"""What schedulers ask of an extender and are told, as values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from deviceplugin.kube.pod_wire import Pod


class NodeMetadata(msgspec.Struct):
    """Which node it is."""

    name: str = ""
    labels: dict[str, str] | None = None
    uid: str = ""


class NodeStatus(msgspec.Struct):
    """What a node offers."""

    allocatable: dict[str, str | int] | None = None


class Node(msgspec.Struct):
    """The few fields of a Node that matter here."""

    metadata: NodeMetadata = msgspec.field(default_factory=NodeMetadata)
    status: NodeStatus = msgspec.field(default_factory=NodeStatus)


@dataclass(frozen=True, slots=True)
class NodesAsked:
    """A pod, and nodes where it might go.

    Attributes:
        names: in the order in which they came.
        nodes: the nodes themselves by name, where they came whole; None where by name.
        raw: the same as they came.
    """

    pod: Pod
    names: Sequence[str]
    nodes: Mapping[str, Node] | None = None
    raw: Mapping[str, msgspec.Raw] | None = None


@dataclass(frozen=True, slots=True)
class Judgement:
    """What `filter` found out.

    Attributes:
        fitting: names of nodes.
        refused: why not, by node: other pods would have to go.
        impossible: why not, by node: whatever goes.
        error: why nothing was found out; empty where it was.
    """

    fitting: Sequence[str] = ()
    refused: Mapping[str, str] = field(default_factory=dict)
    impossible: Mapping[str, str] = field(default_factory=dict)
    error: str = ""


@dataclass(frozen=True, slots=True)
class Victims:
    """Pods that a scheduler would end on a node.

    Attributes:
        uids: of the pods.
        violations: of PodDisruptionBudgets.
    """

    uids: tuple[str, ...]
    violations: int = 0


@dataclass(frozen=True, slots=True)
class PreemptionAsked:
    """A pod, and whom a scheduler would end for it, by node."""

    pod: Pod
    victims: Mapping[str, Victims]


@dataclass(frozen=True, slots=True)
class BindingAsked:
    """A pod and the node to which it is to be bound."""

    namespace: str
    name: str
    uid: str
    node: str
