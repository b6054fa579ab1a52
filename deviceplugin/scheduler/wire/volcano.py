"""What Volcano's plugin ``extender`` asks, answered by the extender.

Volcano places the pods of a gang in its session and binds them itself once all have a place. Each
call brings the node's tasks along, so what the session has put there and nobody else knows of is
read from the call, and nothing is kept from one call to the next.
"""

from collections.abc import Sequence, Set
from dataclasses import replace

import msgspec

from deviceplugin.kube.pod_wire import pod_request
from deviceplugin.model.pod_requests import PodRequest
from deviceplugin.scheduler.answers.extender import Extender, NotAnswered
from deviceplugin.scheduler.answers.judging import no_inventory
from deviceplugin.scheduler.answers.session_room import room_beside
from deviceplugin.scheduler.search.node_view import NodeView
from deviceplugin.scheduler.search.plans import Refusal
from deviceplugin.scheduler.search.preemption import victims
from deviceplugin.scheduler.search.score import score
from libvgpu.errors import VgpuError

from .volcano_calls import (
    Code,
    EvictionAsked,
    SessionNode,
    TaskOnNode,
    TaskOnNodes,
    TaskStatus,
    Vote,
)

#: Of these the session counts what they take; a pipelined task waits for room that others have.
_TAKING = (TaskStatus.ALLOCATED, TaskStatus.BINDING, TaskStatus.BOUND, TaskStatus.RUNNING)
#: Volcano's own plugins score nodes from 0 to 100, ours from 0 to 10.
_SCORE_STEP = 10
DEFAULT_WEIGHT = 10


class VolcanoExtender:
    """Answers; safe to use from several threads."""

    def __init__(self, extender: Extender, weight: int = DEFAULT_WEIGHT) -> None:
        """Answers by an extender.

        Args:
            weight: by which scores count, since Volcano has none for its plugin.
        """
        self._extender, self._weight = extender, weight

    def predicate(self, asked: TaskOnNode) -> tuple[Code, str]:
        """Returns whether a task may go to a node, and if not, why."""
        try:
            request = self._extender.request_of(asked.pod)
            if request is None:
                return Code.SUCCESS, ""
            found = self._found(request, asked.node)
        except NotAnswered as error:
            return Code.ERROR, error.message
        except VgpuError as error:
            return Code.UNSCHEDULABLE_AND_UNRESOLVABLE, error.message
        if isinstance(found, int):
            return Code.SUCCESS, ""
        if found.resolvable:
            return Code.UNSCHEDULABLE, found.reason
        return Code.UNSCHEDULABLE_AND_UNRESOLVABLE, found.reason

    def prioritize(self, asked: TaskOnNodes) -> dict[str, float]:
        """Returns how good each node is for a task, in Volcano's measure.

        Raises:
            NotAnswered: nobody can be answered now.
        """
        scores = dict.fromkeys((node.name for node in asked.nodes), 0.0)
        try:
            request = self._extender.request_of(asked.pod)
            if request is not None:
                for node in asked.nodes:
                    found = self._found(request, node)
                    if isinstance(found, int):
                        scores[node.name] = float(found * _SCORE_STEP * self._weight)
        except NotAnswered:
            raise
        except VgpuError:
            return scores
        return scores

    def evictable(self, asked: EvictionAsked) -> tuple[Vote, Sequence[msgspec.Raw]]:
        """Returns whom of those that Volcano may evict it should: after whose end the task fits.

        Raises:
            NotAnswered: nobody can be answered now.
            VgpuError: the task asks for what cannot be.
        """
        request = self._extender.request_of(asked.pod)
        if request is None:
            return Vote.ABSTAIN, []
        going: set[str] = set()
        for node in {task.node_name for task in asked.evictees}:
            uids = [task.uid for task in asked.evictees if task.node_name == node]
            going.update(self._victims(request, node, uids))
        return Vote.PERMIT, [
            raw for task, raw in zip(asked.evictees, asked.raw, strict=True) if task.uid in going
        ]

    def _victims(self, request: PodRequest, node: str, uids: Sequence[str]) -> Sequence[str]:
        cluster = self._extender.cluster
        # Whom it may evict was for Volcano to say, not for the priorities of the pods.
        holders = [
            replace(each, priority=min(each.priority, request.priority - 1))
            for each in cluster.holders(node)
            if each.uid in uids
        ]
        empty = NodeView(node, self._extender.policies.domain, (), {})
        wishes = self._extender.policies.wishes(request)

        def without(gone: Set[str]) -> NodeView:
            return cluster.view_without(node, gone) or empty

        return victims(without, request, wishes, holders, uids) or ()

    def _found(self, request: PodRequest, node: SessionNode) -> int | Refusal:
        """Returns the score of a node, or why the task cannot go there."""
        extender = self._extender
        unbound = self._unbound(request, node)
        found = extender.cluster.view(node.name)
        if found is None:
            return Refusal(no_inventory(node.name), resolvable=False)
        view = found[1]
        check = extender.quota_check(request.namespace)
        if not unbound and check is None:
            return extender.verdicts(request, [node.name]).get(node.name, 0)
        policies = extender.policies
        placed = room_beside(view, request, unbound, policies.plan)
        if isinstance(placed, Refusal):
            return placed
        room, plan = placed
        refusal = check.refusal(view, plan) if check is not None else None
        if refusal is not None:
            return Refusal(refusal, resolvable=False)
        return score(room, plan, policies.wishes(request).node_policy or policies.node_policy)

    def _unbound(self, request: PodRequest, node: SessionNode) -> list[PodRequest]:
        """Returns the pods that the session has put on a node and that nobody has told of yet."""
        cluster, domain = self._extender.cluster, self._extender.policies.domain
        found: list[PodRequest] = []
        for task in (node.tasks or {}).values():
            if task is None or task.pod is None or task.status not in _TAKING:
                continue
            if task.uid == request.uid or cluster.pod(task.uid) is not None:
                continue
            other = pod_request(task.pod, domain)
            if other is not None:
                found.append(replace(other, node=""))
        return found
