"""How good a node is for a pod, 0 to 10: pure.

``binpack`` keeps whole GPUs whole. For fractions the best node is one where no empty GPU is opened,
and of those one where least is left over of the GPU they go to; where one must be opened, and for
whole GPUs, it is the node with the fewest empty ones left, so that other nodes stay empty.
``spread`` takes the node with most left.
"""

import math
from collections.abc import Mapping

from deviceplugin.model.fractional import Placement
from libvgpu._native import lib

from .node_view import NodeView
from .plans import Plan, added, part_left

MOST: int = lib.PLACEMENT_BEST
#: The best of a node where an empty GPU is opened; others begin above it.
_OPENING_MOST: int = lib.PLACEMENT_BEST_OPENING


def score(view: NodeView, plan: Plan, node_policy: Placement) -> int:
    """Returns the score.

    Args:
        view: of the node before the pod.
        plan: of the pod there.
    """
    gpus = plan.reservation.gpus
    if not gpus:
        return devices_score(view, plan.reservation.devices, node_policy)
    if node_policy is Placement.SPREAD:
        before, total = free_part(view)
        units = {gpu.uuid: gpu.memory_units for gpu in view.gpus}
        took = added(part_left(t.core, t.memory, units[uuid]) for uuid, t in gpus.items())
        return spread_score(before - took, total)
    empty, total = empty_gpus(view)
    return binpack_score(
        plan.opens > plan.whole, bool(plan.whole), plan.leftover, empty - plan.opens, total
    )


def binpack_score(opens: bool, is_whole: bool, leftover: float, empty_left: int, total: int) -> int:
    """Returns the score by what matters of a node and a plan.

    Args:
        opens: an empty GPU is opened for a fraction.
        is_whole: whole GPUs are taken.
        leftover: see `Plan`.
        empty_left: empty GPUs after.
        total: GPUs.
    """
    if opens:
        return _OPENING_MOST - _OPENING_MOST * empty_left // total
    if is_whole:
        return MOST - MOST * empty_left // total
    # The fuller a GPU is, the finer are its steps.
    return MOST - int((MOST - _OPENING_MOST) * math.sqrt(leftover))


def spread_score(free_left: float, total: int) -> int:
    """Returns the score by how much of so many GPUs is free after."""
    return max(0, round(MOST * free_left / total))


def empty_gpus(view: NodeView) -> tuple[int, int]:
    """Returns how many GPUs nobody has anything of, and how many there are to give."""
    given = [gpu.is_empty for gpu in view.gpus if not gpu.problem]
    return sum(given), len(given)


def free_part(view: NodeView) -> tuple[float, int]:
    """Returns how much is free, in GPUs, and how many there are to give."""
    given = [
        part_left(gpu.core, gpu.memory, gpu.memory_units) for gpu in view.gpus if not gpu.problem
    ]
    return added(given), len(given)


def devices_score(view: NodeView, taken: Mapping[str, int], node_policy: Placement) -> int:
    """Returns the score of a pod that takes whole devices only."""
    total = sum(view.devices[name].total for name in taken)
    free = sum(view.devices[name].free - count for name, count in taken.items())
    if not total:
        return 0
    part = MOST * free // total
    return part if node_policy is Placement.SPREAD else MOST - part
