"""What is known of nodes for a question that was asked before.

Pods of one controller ask the same, and between two pods few nodes change. So for each question the
answer of each node is kept, with the revision of the node that it is for. What is kept is bounded:
the question that was not asked for the longest time goes first.

An answer is a score or a refusal, without GPUs: who binds a pod makes the plan again. One lock, for
a look at the tables; two threads may find out the same at one time, and the answers are alike.
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from itertools import islice

from deviceplugin.model.fractional import Placement
from deviceplugin.model.pod_requests import PodRequest
from deviceplugin.scheduler.search.demand import Demand, demand_of
from deviceplugin.scheduler.search.fit import plan_of
from deviceplugin.scheduler.search.fractions import FractionQuestion
from deviceplugin.scheduler.search.node_view import NodeView
from deviceplugin.scheduler.search.plans import Refusal
from deviceplugin.scheduler.search.score import score
from deviceplugin.scheduler.search.whole_gpus import whole_gpus_verdict
from deviceplugin.scheduler.search.wishes import Wishes

#: A score of 0 to 10, or why the pod cannot go to the node.
Verdict = int | Refusal
#: How many nodes are looked at together, and between two looks at a deadline.
NODES_AT_ONCE = 500
#: Answers that are kept in all; some 250 bytes each.
MOST_ANSWERS = 160_000
_NOBODY: tuple[int, Verdict] = (-1, 0)


def verdicts(
    views: Sequence[NodeView], demand: Demand, node_policy: Placement
) -> Sequence[Verdict]:
    """Returns what each node is for a pod, however often that was found out before."""
    question = FractionQuestion.of(demand, node_policy)
    if question is None:
        return [_verdict(view, demand, node_policy) for view in views]
    return [
        answer if answer is not None else _verdict(view, demand, node_policy)
        for view, answer in zip(views, question.answers(views), strict=True)
    ]


def _verdict(view: NodeView, demand: Demand, node_policy: Placement) -> Verdict:
    quick = whole_gpus_verdict(view, demand, node_policy)
    if quick is not None:
        return quick
    found = plan_of(view, demand, [str(number) for number in range(len(demand.asks))])
    return found if isinstance(found, Refusal) else score(view, found, node_policy)


class Verdicts:
    """The answers that are kept; safe to use from several threads."""

    def __init__(
        self,
        most_answers: int = MOST_ANSWERS,
        judge: Callable[[Sequence[NodeView], Demand, Placement], Sequence[Verdict]] = verdicts,
    ) -> None:
        """Knows nothing yet."""
        self._most_answers, self._judge = most_answers, judge
        self._lock = threading.Lock()
        #: By question, the one that was asked last at the end; by node revision and answer.
        self._known: dict[tuple[Demand, Placement], dict[str, tuple[int, Verdict]]] = {}

    def of_nodes(
        self,
        request: PodRequest,
        wishes: Wishes,
        domain: str,
        default_policy: Placement,
        nodes: Iterable[tuple[str, int, NodeView]],
    ) -> dict[str, Verdict]:
        """Returns the answer of each node.

        Args:
            domain: of the resources.
            default_policy: for nodes, where the pod wishes none.
            nodes: name, revision and view; a view is another whenever its revision is. They may
                end by an exception where the time is over: what was found until then is kept.
        """
        demand = demand_of(request, wishes, domain)
        if isinstance(demand, Refusal):
            return {name: demand for name, _, _ in nodes}
        policy = wishes.node_policy or default_policy
        known = self._table(demand, policy)
        found: dict[str, Verdict] = {}
        remaining = iter(nodes)
        try:
            while some := list(islice(remaining, NODES_AT_ONCE)):
                self._find_out(some, known, demand, policy)
                found.update((name, known[name][1]) for name, _, _ in some)
        finally:
            self._bound()
        return found

    @property
    def count(self) -> int:
        """How many answers are kept."""
        with self._lock:
            return sum(map(len, self._known.values()))

    def _find_out(
        self,
        nodes: Sequence[tuple[str, int, NodeView]],
        known: dict[str, tuple[int, Verdict]],
        demand: Demand,
        policy: Placement,
    ) -> None:
        changed = [
            (name, revision, view)
            for name, revision, view in nodes
            if known.get(name, _NOBODY)[0] != revision
        ]
        if changed:
            answers = self._judge([view for _, _, view in changed], demand, policy)
            for (name, revision, _), answer in zip(changed, answers, strict=True):
                known[name] = (revision, answer)

    def _table(self, demand: Demand, policy: Placement) -> dict[str, tuple[int, Verdict]]:
        with self._lock:
            known = self._known.pop((demand, policy), {})
            self._known[demand, policy] = known
            return known

    def _bound(self) -> None:
        with self._lock:
            count = sum(map(len, self._known.values()))
            while count > self._most_answers and self._known:
                oldest = next(iter(self._known))
                count -= len(self._known.pop(oldest))
