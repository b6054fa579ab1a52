"""Why a pod has no place on a node, in one short sentence that names what came nearest: pure."""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from deviceplugin.model.units import CORE_UNITS_PER_GPU
from deviceplugin.policy.pairing.implicit_units import default_memory
from libvgpu.limits import Family
from libvgpu.sizes import format_size

from .demand import Ask
from .node_view import DRAINS, DeviceRoom, GpuRoom
from .plans import Refusal, short
from .wishes import Wishes

#: The units that people write for bytes: Gi, G, Mi, M, Ki, k.
_SUFFIXES = (1 << 30, 10**9, 1 << 20, 10**6, 1 << 10, 1000)


# A sentence for each reason.
def no_gpu(gpus: Iterable[GpuRoom], ask: Ask, wishes: Wishes) -> Refusal:  # noqa: C901, PLR0912
    """Returns why none of a node's GPUs holds the fraction of one container.

    Args:
        gpus: with what is free for this container; none of them holds it.
    """
    core, asked, family = ask.core, ask.memory, ask.family
    anywhere = wishes.are_for_any_gpu
    problem: GpuRoom | None = None
    lacks_memory = lacks_core = lacks_both = full = None
    largest = -1
    is_possible = is_lone_here = False
    for gpu in gpus:
        if gpu.family is not family:
            continue
        if not (anywhere or wishes.allow(gpu.product, gpu.uuid)):
            largest = max(largest, 0)
            continue
        memory = asked or default_memory(gpu.memory_units, core)
        if gpu.memory_units > largest:
            largest = gpu.memory_units
        if not gpu.lone_halves and (core == 0 or asked == 0):
            is_lone_here = True
            continue
        if gpu.problem:
            problem = gpu
            is_possible = is_possible or gpu.problem == DRAINS
            continue
        if gpu.memory_units >= memory:
            is_possible = True
        if gpu.core >= core:
            if gpu.memory >= memory:
                full = gpu
            elif lacks_memory is None or gpu.memory > lacks_memory.memory:
                lacks_memory = gpu
        elif gpu.memory >= memory:
            if lacks_core is None or gpu.core > lacks_core.core:
                lacks_core = gpu
        elif lacks_both is None or gpu.core > lacks_both.core:
            lacks_both = gpu
    if full is not None:
        return Refusal(f"GPU {full.index}: MPS serves no more containers there")
    near = lacks_memory or lacks_core or lacks_both
    if near is None:
        return Refusal(_nothing(ask, wishes, problem, largest, is_lone_here), is_possible)
    if not is_possible:
        return Refusal(
            f"{_size(asked, near.memory_unit_bytes)} of memory asked, a GPU here has "
            f"{_size(largest, near.memory_unit_bytes)}"
            f"{_meant(asked, largest, near.memory_unit_bytes)}",
            False,
        )
    unit = near.memory_unit_bytes
    memory = asked or default_memory(near.memory_units, core)
    if lacks_memory is not None and lacks_core is not None:
        return Refusal(
            f"no single GPU has {core} core and {_size(memory, unit)}: GPU {lacks_memory.index} has"
            f" {lacks_memory.core} core but {_size(lacks_memory.memory, unit)}, "
            f"GPU {lacks_core.index} {_size(lacks_core.memory, unit)} but {lacks_core.core} core"
        )
    if near is lacks_memory:
        with_core = "" if asked else f", which come with {core} core"
        return Refusal(
            f"GPU {near.index}: {_size(near.memory, unit)} free of {_size(memory, unit)} asked"
            f"{with_core}"
        )
    if near is lacks_core:
        return Refusal(f"GPU {near.index}: {near.core} core free of {core} asked")
    return Refusal(
        f"GPU {near.index}: {near.core} core and {_size(near.memory, unit)} free of {core} core and"
        f" {_size(memory, unit)} asked"
    )


def too_few_whole(
    gpus: Iterable[GpuRoom], eligible: int, count: int, ask: Ask, wishes: Wishes
) -> Refusal:
    """Returns why there are no whole GPUs for one container.

    Args:
        eligible: how many could be taken now.
        count: how many are needed.
    """
    known = [gpu for gpu in gpus if gpu.family is ask.family]
    wished = [gpu for gpu in known if wishes.allow(gpu.product, gpu.uuid)]
    allowed = [gpu for gpu in wished if gpu.lone_halves or not ask.is_lone]
    could = [gpu for gpu in allowed if gpu.problem in ("", DRAINS)]
    if not could:
        problem = allowed[0] if allowed else None
        largest = -1 if not known else max((gpu.memory_units for gpu in wished), default=0)
        return Refusal(_nothing(ask, wishes, problem, largest, bool(wished) and not allowed), False)
    if len(could) >= count > eligible:
        return Refusal(f"{count} empty GPUs asked, {eligible} of {len(could)} are empty")
    if len(could) < count:
        return Refusal(f"{count} whole GPUs asked, there are {len(could)} here", False)
    sizes = sorted({gpu.memory_units for gpu in could})
    return Refusal(
        f"{ask.memory} memory units are not all of {count} whole GPUs of one size, which have "
        f"{' or '.join(map(str, sizes[:4]))} each",
        False,
    )


def why_not_offered(devices: Mapping[str, DeviceRoom], ask: Ask, wishes: Wishes) -> Refusal | None:
    """Returns why a node can never give a container its whole devices, None where it can."""
    for name, asked in ask.devices:
        room = devices.get(name)
        if room is None or asked > room.total or (room.most and asked > room.most):
            total, most = (room.total, room.most) if room is not None else (0, 0)
            return no_devices(name, asked, 0, total, most)
        if wishes.use_gpus or wishes.avoid_gpus:
            why = f"GPUs of {name} are given whole, so a wish for UUIDs cannot be honoured"
            return Refusal(short(why), False)
        if not all(map(wishes.allow_model, room.products)):
            few = ", ".join(room.products)
            why = f"{name} may be a GPU that is not as wished ({wishes.described()}): {few}"
            return Refusal(short(why), False)
    return None


def no_devices(name: str, asked: int, free: int, total: int, most: int) -> Refusal:
    """Returns why there are not so many whole devices or replicas.

    Args:
        total: 0 where the node has none.
        most: that a container may have; 0: as many as there are.
    """
    if total == 0:
        return Refusal(short(f"the node offers no {name}"), False)
    if most and asked > most:
        return Refusal(f"{name}: {asked} asked, a container may have {most} here", False)
    if asked > total:
        return Refusal(f"{name}: {asked} asked, there are {total} here", False)
    return Refusal(f"{name}: {free} free of {asked} asked")


def together(refusal: Refusal, number: int, count: int) -> Refusal:
    """Returns why one of several containers has no place, next to those before it."""
    if number == 0 or count == 1:
        return refusal
    reason = f"container {number + 1} of {count}: {refusal.reason}"
    return Refusal(short(reason), refusal.resolvable)


def out_of_steps(why: Refusal) -> Refusal:
    """Returns that no place was found before the search gave up.

    Args:
        why: what came nearest, with an empty reason where nothing is known.
    """
    reason = why.reason or "too many ways to place the containers"
    return Refusal(short(f"no place found in time: {reason}"))


def _nothing(ask: Ask, wishes: Wishes, problem: GpuRoom | None, largest: int, is_lone: bool) -> str:
    """Returns why no GPU counts at all.

    Args:
        largest: memory units of the largest GPU that may be taken; -1 where the node has none of
            the family.
    """
    assert ask.family is not None
    family = ask.family.name.lower()
    if problem is not None:
        return short(f"GPU {problem.index}: {problem.problem}")
    if largest < 0:
        return f"no GPU is shared in family {family} here"
    if is_lone:
        return f"{'core' if ask.core else 'memory'} of family {family} alone is forbidden here"
    return short(f"no GPU of family {family} here is as wished: {wishes.described()}")


def _meant(asked: int, largest: int, unit_bytes: int) -> str:
    """Returns what was probably meant by an amount that looks as if it had a suffix."""
    for factor in _SUFFIXES:
        count, rest = divmod(asked, factor)
        if not rest and 0 < count <= largest:
            unit = _size(1, unit_bytes)
            return f"; memory is counted in units of {unit}: for {count} of them write {count}"
    return ""


@lru_cache(4096)
def _size(units: int, unit_bytes: int) -> str:
    return format_size(units * unit_bytes)


def most_units(gpus: Sequence[GpuRoom], family: Family | None) -> int:
    """Returns how many memory units the largest GPU of a family has; 0 where there is none."""
    return max((gpu.memory_units for gpu in gpus if gpu.family is family), default=0)


def is_whole(ask: Ask, most: int) -> bool:
    """Returns whether a container asks for several whole GPUs.

    Args:
        most: see `most_units`.
    """
    return ask.core > CORE_UNITS_PER_GPU or (ask.core == 0 and 0 < most < ask.memory)
