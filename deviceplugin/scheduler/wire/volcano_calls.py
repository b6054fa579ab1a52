"""The calls of Volcano's scheduler plugin ``extender`` (pkg/scheduler/plugins/extender): values.

Pure. The calls' own keys are in lower case; tasks and nodes are Volcano's ``TaskInfo`` and
``NodeInfo``, whose keys are the Go fields' names. A node brings along the tasks that are on it in
Volcano's session, those among them that are not bound yet.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

import msgspec

from deviceplugin.kube.pod_wire import Pod
from deviceplugin.serving.call_body import Size
from libvgpu.decoding import json_decoder

from .go_json import CallMalformed, decoded, field, fields


class TaskStatus(IntEnum):
    """Where a task is (pkg/scheduler/api/types.go); those that are not named are of no interest."""

    ALLOCATED = 1 << 1
    PIPELINED = 1 << 2
    BINDING = 1 << 3
    BOUND = 1 << 4
    RUNNING = 1 << 5


class Code(IntEnum):
    """Why a node will not do (the scheduler framework's codes)."""

    SUCCESS = 0
    ERROR = 1
    UNSCHEDULABLE = 2
    UNSCHEDULABLE_AND_UNRESOLVABLE = 3


class Vote(IntEnum):
    """What is said to an eviction (pkg/scheduler/plugins/util)."""

    REJECT = -1
    ABSTAIN = 0
    PERMIT = 1


class Task(msgspec.Struct, rename="pascal"):
    """A task, that is a pod."""

    uid: str = msgspec.field(name="UID", default="")
    node_name: str = ""
    status: int = 0
    pod: Pod | None = None


class SessionNode(msgspec.Struct, rename="pascal"):
    """A node as it is in Volcano's session."""

    name: str = ""
    tasks: dict[str, Task | None] | None = None


@dataclass(frozen=True, slots=True)
class TaskOnNode:
    """May a task go to a node?"""

    pod: Pod
    node: SessionNode


@dataclass(frozen=True, slots=True)
class TaskOnNodes:
    """How good are nodes for a task?"""

    pod: Pod
    nodes: Sequence[SessionNode]


@dataclass(frozen=True, slots=True)
class EvictionAsked:
    """Whom of these may a task have evicted?

    Attributes:
        raw: the evictees as they came.
    """

    pod: Pod
    evictees: Sequence[Task]
    raw: Sequence[msgspec.Raw]


_TASK = json_decoder(Task)
_NODE, _NODES = json_decoder(SessionNode), json_decoder(list[SessionNode])
_RAW_LIST = json_decoder(list[msgspec.Raw])
_PREDICATE, _PRIORITIZE, _EVICT = "PredicateRequest", "PrioritizeRequest", "PreemptableRequest"


def task_on_node(body: bytes) -> TaskOnNode:
    """Returns what ``predicate`` is sent.

    Raises:
        CallMalformed: it is no such call.
    """
    found = fields(body, _PREDICATE)
    node = field(found, "node", _NODE, _PREDICATE, Size.OBJECTS)
    if node is None:
        raise CallMalformed(f"{_PREDICATE} has no node")
    return TaskOnNode(_pod(field(found, "task", _TASK, _PREDICATE), _PREDICATE), node)


def task_on_nodes(body: bytes) -> TaskOnNodes:
    """Returns what ``prioritize`` is sent.

    Raises:
        CallMalformed: it is no such call.
    """
    found = fields(body, _PRIORITIZE)
    pod = _pod(field(found, "task", _TASK, _PRIORITIZE), _PRIORITIZE)
    nodes = field(found, "nodes", _NODES, _PRIORITIZE, Size.OBJECTS)
    return TaskOnNodes(pod, nodes or [])


def eviction_asked(body: bytes) -> EvictionAsked:
    """Returns what ``preemptable`` and ``reclaimable`` are sent.

    Raises:
        CallMalformed: it is no such call.
    """
    found = fields(body, _EVICT)
    pod = _pod(field(found, "evictor", _TASK, _EVICT), _EVICT)
    raw = field(found, "evictees", _RAW_LIST, _EVICT, Size.FLAT) or []
    tasks = [decoded(each, _TASK, f"one of {_EVICT}'s evictees") for each in raw]
    return EvictionAsked(pod, tasks, raw)


def predicate_result(code: Code, why: str) -> bytes:
    """Returns the answer to ``predicate``; the sentence stands where others have a status."""
    return msgspec.json.encode({"status": why, "code": int(code)})


def prioritize_result(scores: Mapping[str, float], error: str = "") -> bytes:
    """Returns the answer to ``prioritize``."""
    return msgspec.json.encode({"nodeScore": scores, "errorMessage": error})


def eviction_result(vote: Vote, victims: Sequence[msgspec.Raw]) -> bytes:
    """Returns the answer to ``preemptable`` and ``reclaimable``."""
    return msgspec.json.encode({"status": int(vote), "victims": victims})


def _pod(task: Task | None, what: str) -> Pod:
    if task is None or task.pod is None:
        raise CallMalformed(f"{what} has no task with a Pod")
    return task.pod
