"""Pods whose containers ask for fractions of GPUs, judged for many nodes at once.

Most pods are such ones, and a look at 5 000 nodes is made of little else, so it is made in C
(`libvgpu/placement/fractions.c`), one call for all nodes: it lets go of Python's lock once and not
for each. It searches as `node_search` does, step by step. What a node has is laid out for it once
and kept with the node's view; reasons are made here, of what was found. What it has no answer to,
such as several whole GPUs or units of init containers, is left to `fit` and `score`.

Pure but for what is kept with a view, which is the same whoever makes it.
"""

import struct
from collections.abc import Sequence
from typing import Any

from deviceplugin.model.fractional import Placement
from deviceplugin.model.pod_requests import ContainerKind
from deviceplugin.model.units import CORE_UNITS_PER_GPU
from libvgpu._native import ffi, lib

from .demand import Demand
from .fit import Shape, fits_emptied, shape_of
from .node_view import NodeView
from .placing import ANY_NUMBER, Rooms
from .plans import Refusal
from .reasons import no_gpu, out_of_steps, together

#: struct placement_gpu.
_GPU = "q5i5B7x"
_GPU_POLICIES = {
    None: lib.PLACEMENT_AS_CONFIGURED,
    Placement.BINPACK: lib.PLACEMENT_BINPACK,
    Placement.SPREAD: lib.PLACEMENT_SPREAD,
}
_FITS, _ALONE, _NOT_HERE = lib.PLACEMENT_FITS, lib.PLACEMENT_ALONE, lib.PLACEMENT_NOT_HERE
_GAVE_UP = lib.PLACEMENT_GAVE_UP


class FractionQuestion:
    """One question; ask it any number of nodes."""

    def __init__(self, demand: Demand, node_policy: Placement) -> None:
        self._demand = demand
        #: Which container each ask is of.
        self._numbers = [n for n, ask in enumerate(demand.asks) if ask.family is not None]
        self._question = ffi.new("struct placement_question *")
        self._question.ask_count = len(self._numbers)
        self._question.gpu_policy = _GPU_POLICIES[demand.wishes.gpu_policy]
        self._question.spread_node = node_policy is Placement.SPREAD
        for asked, number in zip(self._question.asks, self._numbers, strict=False):
            ask = demand.asks[number]
            asked.core, asked.memory, asked.family = ask.core, ask.memory, ask.family

    @staticmethod
    def of(demand: Demand, node_policy: Placement) -> "FractionQuestion | None":
        """Returns a question for a demand; None where it is of another kind."""
        asks = [ask for ask in demand.asks if ask.family is not None]
        if (
            not 0 < len(asks) <= lib.PLACEMENT_MOST_ASKS
            or any(ask.devices for ask in demand.asks)
            or any(ask.core > CORE_UNITS_PER_GPU for ask in asks)
            or any(ask.kind is ContainerKind.INIT for ask in asks)
        ):
            return None
        return FractionQuestion(demand, node_policy)

    def answers(self, views: Sequence[NodeView]) -> list[int | Refusal | None]:
        """Returns the score of each node, or why the pod cannot go there; None where only a whole
        search says.
        """
        nodes = ffi.new("struct placement_node[]", len(views))
        answers = ffi.new("struct placement_answer[]", len(views))
        wishes = self._demand.wishes
        anywhere, kept = wishes.are_for_any_gpu, []
        for node, view in zip(nodes, views, strict=True):
            gpus, node.gpu_count = laid_out(view), len(view.gpus)
            node.gpus = gpus
            if not anywhere:
                wished = bytes(wishes.allow(gpu.product, gpu.uuid) for gpu in view.gpus)
                node.wished = given = ffi.from_buffer("uint8_t[]", wished)
                kept.append(given)
        lib.placement_judge(self._question, nodes, len(views), answers)
        domain, emptied = self._demand.domain, dict[int, tuple[Shape, bool]]()
        found: list[int | Refusal | None] = []
        for view, answer in zip(views, answers, strict=True):
            finding = answer.finding
            if finding == _NOT_HERE or view.domain != domain:
                found.append(None)
            elif finding == _FITS:
                found.append(answer.score)
            else:
                found.append(self._refusal(view, answer, emptied))
        return found

    def _refusal(
        self, view: NodeView, answer: Any, emptied: dict[int, tuple[Shape, bool]]
    ) -> Refusal:
        """Returns why a node has no place.

        Args:
            emptied: whether the pod would fit a node of each shape without other pods, as far as it
                was found out; by the shape's identity, since equal ones mostly are the same.
        """
        demand, count = self._demand, len(self._demand.asks)
        number = self._numbers[answer.number] if answer.number >= 0 else 0
        gpus: Sequence[Any] = view.gpus
        if answer.finding != _ALONE:
            rooms = Rooms(view)
            for before, place in zip(self._numbers, answer.places, strict=False):
                if before >= number:
                    break
                rooms.put(demand.asks[before], (place,))
            gpus = rooms.with_free()
        if answer.number >= 0:
            why = together(no_gpu(gpus, demand.asks[number], demand.wishes), number, count)
        else:
            why = Refusal("")
        if answer.finding == _GAVE_UP:
            why = out_of_steps(why)
        if not why.resolvable or count == 1:
            return why
        shape = shape_of(view, demand)
        if id(shape) not in emptied:
            emptied[id(shape)] = shape, fits_emptied(shape, demand)
        return why if emptied[id(shape)][1] else Refusal(why.reason, False)


def laid_out(view: NodeView) -> Any:
    """Returns the GPUs of a node as C reads them; made once for a view."""
    kept = view.kept.get("gpus")
    if kept is None:
        values: list[int] = []
        for gpu in view.gpus:
            left = gpu.containers_left
            values += (
                gpu.memory_unit_bytes,
                gpu.core,
                gpu.memory,
                gpu.memory_units,
                ANY_NUMBER if left is None else left,
                gpu.index,
                gpu.family,
                gpu.is_empty,
                gpu.lone_halves,
                gpu.placement is Placement.SPREAD,
                bool(gpu.problem),
            )
        packed = struct.pack(f"<{_GPU * len(view.gpus)}", *values)
        kept = view.kept["gpus"] = (
            ffi.cast("struct placement_gpu *", ffi.from_buffer("uint8_t[]", packed)),
            packed,
        )
    return kept[0]
