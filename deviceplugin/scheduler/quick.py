"""The answers to the pods that most pods are, without a search: pure.

A single container with a fraction of one GPU, or with whole GPUs: then one look at each GPU says
what the node is for it. The same as `fit` and `score` say; a property test holds the two together.
A look at 5 000 nodes is made of this, so it is written for speed.
"""

from deviceplugin.config.fractional import Placement
from deviceplugin.model.units import CORE_UNITS_PER_GPU
from deviceplugin.policy.implicit_units import default_memory

from .demand import Ask, Demand
from .node_view import NodeView
from .placing import is_usable
from .plans import Refusal, share_left
from .reasons import most_units, no_gpu, too_few_whole
from .score import binpack_score, empty_gpus, free_share, spread_score
from .wishes import Wishes

_SPREAD = Placement.SPREAD


def quick_verdict(view: NodeView, demand: Demand, node_policy: Placement) -> int | Refusal | None:
    """Returns the score of a node, or why a pod cannot go there; None where only a search says."""
    if len(demand.asks) != 1 or demand.domain != view.domain:
        return None
    ask = demand.asks[0]
    if ask.family is None:
        return None
    if ask.core > CORE_UNITS_PER_GPU:
        return _whole(view, ask, demand.wishes, node_policy)
    return _fraction(view, ask, demand.wishes, node_policy)


def _fraction(
    view: NodeView, ask: Ask, wishes: Wishes, node_policy: Placement
) -> int | Refusal | None:
    family, core, asked, lone = ask.family, ask.core, ask.memory, ask.is_lone
    policy, anywhere = wishes.gpu_policy, wishes.are_for_any_gpu
    best = None
    size = best_left = empty = total = most = 0
    for gpu in view.gpus:
        units = gpu.memory_units
        if units > most and gpu.family is family:
            most = units
        if gpu.problem:
            continue
        total += 1
        if gpu.is_empty:
            empty += 1
        if gpu.core < core or gpu.family is not family:
            continue
        memory = asked or default_memory(units, core)
        if (
            gpu.memory < memory
            or gpu.containers_left == 0
            or (lone and not gpu.lone_halves)
            or not (anywhere or wishes.allow(gpu.product, gpu.uuid))
        ):
            continue
        # What `placement.left` compares, while all GPUs have the same memory.
        over = (gpu.core - core) * units + (gpu.memory - memory) * CORE_UNITS_PER_GPU
        if best is None:
            best, best_left, size = gpu, over, units
        elif size != units:
            return None
        elif over > best_left if (policy or gpu.placement) is _SPREAD else over < best_left:
            best, best_left = gpu, over
    if core == 0 and asked > most:
        return None  # whole GPUs by their memory
    if best is None:
        return no_gpu(view.gpus, ask, wishes)
    memory = asked or default_memory(size, core)
    if node_policy is _SPREAD:
        free, total = free_share(view)
        return spread_score(free - share_left(core, memory, size), total)
    leftover = share_left(best.core - core, best.memory - memory, size)
    return binpack_score(best.is_empty, False, leftover, empty - best.is_empty, total)


def _whole(view: NodeView, ask: Ask, wishes: Wishes, node_policy: Placement) -> int | Refusal:
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
        free, total = free_share(view)
        return spread_score(free - count, total)
    empty, total = empty_gpus(view)
    return binpack_score(False, True, 0.0, empty - count, total)
