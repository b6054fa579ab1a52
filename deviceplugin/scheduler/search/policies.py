"""What counts where a pod does not say where it wants to be, and where it would be then. Pure."""

from dataclasses import dataclass, replace

from deviceplugin.model.fractional import Placement
from deviceplugin.model.pod_requests import PodRequest

from .fit import plan
from .node_view import NodeView
from .plans import Plan, Refusal
from .wishes import Wishes, wishes_of


@dataclass(frozen=True, slots=True)
class Policies:
    """What counts where a pod's annotations say nothing.

    Attributes:
        domain: of the resources.
        node_policy: which node is best.
        gpu_policy: which GPU is; None: as the node's config says.
    """

    domain: str
    node_policy: Placement = Placement.BINPACK
    gpu_policy: Placement | None = None

    def wishes(self, request: PodRequest) -> Wishes:
        """Returns what a pod wishes.

        Raises:
            UsageError: a value that is not allowed.
        """
        wishes = wishes_of(request, self.domain)
        if wishes.gpu_policy is None and self.gpu_policy is not None:
            wishes = replace(wishes, gpu_policy=self.gpu_policy)
        return wishes

    def plan(self, view: NodeView, request: PodRequest) -> Plan | Refusal:
        """Returns where a pod would go on a node; the planner of state and binds.

        Raises:
            UsageError: a wish that is not allowed.
        """
        return plan(view, request, self.wishes(request))
