"""What is published of a node, made as small as it has to be. Pure.

The API server takes so many bytes of annotations and no more. A node with more slices than that is
published with less said of each: what is free stays right.
"""

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from deviceplugin.pages.published import (
    MOST_BYTES,
    PublishedGpu,
    PublishedNode,
    PublishedSlice,
    encode,
)


@dataclass(frozen=True, slots=True)
class FittedValue:
    """The annotation's value.

    Attributes:
        left_out: what it does not say since it would be too large, as a phrase; empty: all is said.
    """

    value: str
    left_out: str = ""


def fitted_value(node: PublishedNode, most_bytes: int = MOST_BYTES) -> FittedValue:
    """Returns as much as can be said of a node in so many bytes; less than the least is not said.

    Args:
        most_bytes: of the value.
    """
    steps: tuple[tuple[Callable[[PublishedNode], PublishedNode], str], ...] = (
        (lambda whole: whole, ""),
        (without_names, "names of pods and how close GPUs lie"),
        (summed_up, "names of pods, how close GPUs lie and single slices"),
    )
    fitted = FittedValue("")
    for smaller, left_out in steps:
        fitted = FittedValue(encode(smaller(node)), left_out)
        if len(fitted.value.encode()) <= most_bytes:
            break
    return fitted


def without_names(node: PublishedNode) -> PublishedNode:
    """Returns a node without saying whose its slices are, and how close its GPUs lie."""
    return msgspec.structs.replace(
        node,
        gpus=tuple(msgspec.structs.replace(each, closeness={}) for each in node.gpus),
        slices=tuple(PublishedSlice(each.id, each.units) for each in node.slices),
        resources=tuple(msgspec.structs.replace(each, pods=()) for each in node.resources),
    )


def summed_up(node: PublishedNode) -> PublishedNode:
    """Returns the same with one slice for all that is held of a GPU.

    MPS serves as many containers less as there are slices less.
    """
    sums: dict[str, tuple[int, int, int]] = {}
    for each in node.slices:
        for uuid, (core, memory) in each.units.items():
            before = sums.get(uuid, (0, 0, 0))
            sums[uuid] = before[0] + core, before[1] + memory, before[2] + 1

    def gpu(each: PublishedGpu) -> PublishedGpu:
        most, (_, _, count) = each.sharing.most_containers, sums.get(each.uuid, (0, 0, 1))
        if most is None:
            return each
        sharing = msgspec.structs.replace(each.sharing, most_containers=max(1, most - count + 1))
        return msgspec.structs.replace(each, sharing=sharing)

    few = without_names(node)
    return msgspec.structs.replace(
        few,
        gpus=tuple(map(gpu, few.gpus)),
        slices=tuple(
            PublishedSlice(uuid, {uuid: (core, memory)})
            for uuid, (core, memory, _) in sorted(sums.items())
        ),
    )
