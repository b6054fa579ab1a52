"""The quotas of one namespace, held against what a pod would take of many nodes. For one call.

How much memory a pod takes depends on the node's GPUs (a lone core's part of the memory, the size
of a unit) and on nothing else of the node, so one plan is enough for all nodes whose GPUs are cut
alike.
"""

from collections.abc import Callable, Iterable, Sequence

from deviceplugin.model.quotas import Quota
from deviceplugin.scheduler.cluster.quotas import Usage, has_quota, refusal, usage_of
from deviceplugin.scheduler.search.node_view import NodeView
from deviceplugin.scheduler.search.plans import Plan, Refusal

_Shape = frozenset[tuple[object, int, int]]


class QuotaCheck:
    """What pods of a namespace hold, and what they may; of one thread."""

    def __init__(self, quotas: Sequence[Quota], namespace: str, used: Usage) -> None:
        """Takes what is held now."""
        self._quotas, self._namespace, self._used = quotas, namespace, used
        self._known: dict[_Shape, str | None] = {}

    @classmethod
    def of(
        cls, quotas: Sequence[Quota], namespace: str, usage: Callable[[str], Usage]
    ) -> "QuotaCheck | None":
        """Returns it for a namespace, None where no quota is for it.

        Args:
            usage: returns what a namespace holds.
        """
        if not quotas or not has_quota(quotas, namespace):
            return None
        return cls(quotas, namespace, usage(namespace))

    def refusal(self, view: NodeView, plan: Plan) -> str | None:
        """Returns why a pod must not be bound, None where it may."""
        asked = usage_of(view.gpus, plan.reservation)
        return refusal(self._quotas, self._namespace, self._used, asked)

    def refusal_of(self, view: NodeView, planned: Callable[[], Plan | Refusal]) -> str | None:
        """Returns the same for a pod that fits a node.

        Args:
            planned: makes the plan.
        """
        shape = _shape(view)
        if shape not in self._known or _is_mixed(shape):
            plan = planned()
            # The node has changed since; whoever binds there asks again.
            self._known[shape] = self.refusal(view, plan) if isinstance(plan, Plan) else None
        return self._known[shape]


def _shape(view: NodeView) -> _Shape:
    return frozenset((gpu.family, gpu.memory_units, gpu.memory_unit_bytes) for gpu in view.gpus)


def _is_mixed(shape: Iterable[tuple[object, int, int]]) -> bool:
    """Returns whether GPUs of one family are cut differently."""
    families = [family for family, _, _ in shape]
    return len(families) != len(set(families))
