"""What schedulers ask, answered from memory: which nodes a pod fits, how well, and who must go.

Nothing here waits or changes anything, but for `bind` (see `binding`). Values in, values out; HTTP
is in `wire`. Safe to use from several threads, as is all that it is made of.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from deviceplugin.kube.pod_wire import Pod, pod_request
from deviceplugin.model.pod_requests import PodRequest
from deviceplugin.model.quotas import Quota
from deviceplugin.scheduler.cluster.cluster import Cluster
from deviceplugin.scheduler.search.demand import demand_of
from deviceplugin.scheduler.search.node_view import NodeView
from deviceplugin.scheduler.search.plans import Plan, Refusal
from deviceplugin.scheduler.search.policies import Policies
from deviceplugin.scheduler.search.preemption import victims
from libvgpu.errors import VgpuError

from .calls import Judgement, Node, NodesAsked, PreemptionAsked, Victims
from .judging import Finding, judged
from .quota_check import QuotaCheck
from .template_view import template_view
from .verdicts import NODES_AT_ONCE, Verdict, Verdicts, verdicts


class NotAnswered(VgpuError):  # noqa: N818 - it is the call that is not answered
    """Nothing can be said now; the scheduler is to ask again."""


class Extender:
    """Answers; it has no state of its own but what it counts."""

    def __init__(  # noqa: PLR0913 - all that an answer is made of
        self,
        cluster: Cluster,
        policies: Policies,
        quotas: Callable[[], Sequence[Quota]],
        obstacle: Callable[[], str],
        count: Callable[[Finding, int], None] = lambda finding, number: None,
        remember: Callable[[PodRequest], None] = lambda request: None,
        refused: Callable[[PodRequest], None] = lambda request: None,
        verdicts: Verdicts | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Knows nothing yet.

        Args:
            quotas: those in force.
            obstacle: says why nobody can be answered now; empty where they can be.
            count: is told how many nodes were found what.
            remember: is told of pods that were asked about.
            refused: is told of pods that fit no node now, and may later.
            clock: that of the deadlines.
        """
        self.cluster, self.policies = cluster, policies
        self._quotas, self._obstacle = quotas, obstacle
        self._count, self._remember, self._refused = count, remember, refused
        self._verdicts, self._clock = verdicts or Verdicts(), clock

    def request_of(self, pod: Pod) -> PodRequest | None:
        """Returns what a pod asks for; None where that is nothing of the domain.

        Raises:
            NotAnswered: nobody can be answered now.
            VgpuError: an amount is none.
        """
        obstacle = self._obstacle()
        if obstacle:
            raise NotAnswered(obstacle)
        return pod_request(pod, self.policies.domain)

    def filter(self, asked: NodesAsked, deadline_s: float) -> Judgement:
        """Returns which nodes a pod fits, and why not the others."""
        try:
            request = self.request_of(asked.pod)
            if request is None:
                return Judgement(asked.names)
            self._remember(request)
            found = self.verdicts(request, asked.names, asked.nodes, deadline_s)
        except NotAnswered as error:
            return Judgement(error=error.message)
        except VgpuError as error:  # what the pod says of itself is no request
            self._count(Finding.IMPOSSIBLE, len(asked.names))
            return Judgement(impossible=dict.fromkeys(asked.names, error.message))
        over = partial(self._over, self.quota_check(request.namespace), request)
        judgement, findings = judged(asked.names, found, over)
        for finding, number in findings.items():
            self._count(finding, number)
        if judgement.refused and not judgement.fitting:
            self._refused(request)
        return judgement

    def prioritize(self, asked: NodesAsked, deadline_s: float) -> list[tuple[str, int]]:
        """Returns how good each node is for a pod, 0 to 10.

        Raises:
            NotAnswered: nobody can be answered now.
        """
        try:
            request = self.request_of(asked.pod)
            if request is None:
                return [(name, 0) for name in asked.names]
            found = self.verdicts(request, asked.names, asked.nodes, deadline_s)
        except NotAnswered:
            raise
        except VgpuError:
            return [(name, 0) for name in asked.names]
        return [
            (name, answer if isinstance(answer := found.get(name, 0), int) else 0)
            for name in asked.names
        ]

    def preempt(self, asked: PreemptionAsked, deadline_s: float) -> dict[str, Victims]:
        """Returns the pods that must go, by node; nodes where that would be of no use are left out.

        Raises:
            NotAnswered: nobody can be answered now.
            VgpuError: the pod asks for what cannot be.
        """
        request = self.request_of(asked.pod)
        if request is None:
            return dict(asked.victims)
        wishes = self.policies.wishes(request)
        found: dict[str, Victims] = {}
        for name, given in asked.victims.items():
            self.look_at_clock(deadline_s)
            uids = victims(
                partial(self._without, name),
                request,
                wishes,
                self.cluster.holders(name),
                given.uids,
            )
            if uids is not None:
                found[name] = replace(given, uids=uids)
        return found

    def verdicts(
        self,
        request: PodRequest,
        names: Sequence[str],
        nodes: Mapping[str, Node] | None = None,
        deadline_s: float = float("inf"),
    ) -> dict[str, Verdict]:
        """Returns what each node is for a pod; nodes without an inventory are left out.

        Args:
            nodes: by name; those that have no inventory are judged by what they say they have.

        Raises:
            NotAnswered: the time is over.
            UsageError: a wish that is not allowed.
        """
        wishes, domain = self.policies.wishes(request), self.policies.domain
        found = self._verdicts.of_nodes(
            request, wishes, domain, self.policies.node_policy, self._views(names, deadline_s)
        )
        for name, node in (nodes or {}).items():
            if name not in found:
                labels, allocatable = node.metadata.labels, node.status.allocatable
                view = template_view(name, domain, allocatable or {}, labels or {})
                demand = demand_of(request, wishes, domain)
                policy = wishes.node_policy or self.policies.node_policy
                found[name] = (
                    demand if isinstance(demand, Refusal) else verdicts([view], demand, policy)[0]
                )
        return found

    def quota_check(self, namespace: str) -> QuotaCheck | None:
        """Returns what holds the pods of a namespace against its quotas; None without one."""
        return QuotaCheck.of(self._quotas(), namespace, self.cluster.usage)

    def bind_refusal(self, request: PodRequest, view: NodeView, chosen: Plan) -> str | None:
        """Returns why a pod may not have what a plan takes, None where it may."""
        check = self.quota_check(request.namespace)
        return check.refusal(view, chosen) if check is not None else None

    def look_at_clock(self, deadline_s: float) -> None:
        """Ends a call that nobody waits for any more.

        Raises:
            NotAnswered: the time is over.
        """
        if self._clock() > deadline_s:
            raise NotAnswered("the answer took too long; this replica has too much to do")

    def _without(self, node: str, uids: Iterable[str]) -> NodeView:
        found = self.cluster.view_without(node, uids)
        # A node without an inventory has room for nobody.
        return found or NodeView(node, self.policies.domain, (), {})

    def _views(
        self, names: Sequence[str], deadline_s: float
    ) -> Iterator[tuple[str, int, NodeView]]:
        for start in range(0, len(names), NODES_AT_ONCE):
            self.look_at_clock(deadline_s)
            yield from self.cluster.views(names[start : start + NODES_AT_ONCE])

    def _over(self, check: QuotaCheck | None, request: PodRequest, name: str) -> str | None:
        if check is None:
            return None
        found = self.cluster.view(name)
        if found is None:  # a template: what a quota allows is asked of a real node
            return None
        view = found[1]
        return check.refusal_of(view, lambda: self.policies.plan(view, request))
