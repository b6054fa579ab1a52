"""The answer to a pod of one container with whole GPUs, without a search: pure.

One look at each GPU says what the node is for it. The same as `fit` and `score` say; a property
test holds them together. A look at 5 000 nodes is made of this, so it is written for speed.
"""

from deviceplugin.model.fractional import Placement
from deviceplugin.model.units import CORE_UNITS_PER_GPU

from .demand import Demand
from .node_view import NodeView
from .placing import is_usable
from .plans import Refusal
from .reasons import most_units, too_few_whole
from .score import binpack_score, empty_gpus, free_part, spread_score

_SPREAD = Placement.SPREAD


def whole_gpus_verdict(
    view: NodeView, demand: Demand, node_policy: Placement
) -> int | Refusal | None:
    """Returns the score of a node, or why a pod cannot go there; None for any other pod."""
    if len(demand.asks) != 1 or demand.domain != view.domain:
        return None
    ask, wishes = demand.asks[0], demand.wishes
    if ask.family is None or ask.core <= CORE_UNITS_PER_GPU:
        return None
    count, size = ask.core // CORE_UNITS_PER_GPU, 0
    if ask.memory:  # all of theirs, so it says of which size they are
        size = ask.memory // count if ask.memory % count == 0 else -1
        if ask.memory <= most_units(view.gpus, ask.family):
            size = -1
    eligible = fitting = 0
    for gpu in view.gpus:
        if (
            gpu.is_empty
            and gpu.containers_left != 0
            and is_usable(gpu, ask)
            and wishes.allow(gpu.product, gpu.uuid)
        ):
            eligible += 1
            fitting += not size or gpu.memory_units == size
    if fitting < count:
        return too_few_whole(view.gpus, eligible, count, ask, wishes)
    if node_policy is _SPREAD:
        free, total = free_part(view)
        return spread_score(free - count, total)
    empty, total = empty_gpus(view)
    return binpack_score(False, True, 0.0, empty - count, total)
