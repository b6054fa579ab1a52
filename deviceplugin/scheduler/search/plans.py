"""What is found out about a pod and a node: where it would go, or why it cannot; values."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from deviceplugin.model.pod_requests import PodRequest
from deviceplugin.model.units import CORE_UNITS_PER_GPU

from .node_view import NodeView, Reservation

#: A refusal's sentence at most: kube-scheduler puts those of 5 000 nodes into one answer.
MOST_REASON_BYTES = 200


@dataclass(frozen=True, slots=True)
class Plan:
    """Where a pod would go on a node.

    Attributes:
        chosen: UUIDs of the GPUs or MIG devices of each container's fraction, by its name.
        reservation: what the pod takes of the node.
        opens: GPUs that were empty.
        whole: GPUs that containers get whole, several at a time.
        leftover: what is free then of the GPUs of its fractions, on average: 0 to 1 of a GPU.
    """

    chosen: Mapping[str, tuple[str, ...]]
    reservation: Reservation
    opens: int = 0
    whole: int = 0
    leftover: float = 0.0


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a pod cannot go to a node.

    Attributes:
        reason: one short sentence.
        resolvable: it could once other pods have ended.
    """

    reason: str
    resolvable: bool = True


def short(reason: str) -> str:
    """Returns a sentence with names of others in it, cut off where it is too long."""
    return reason.encode()[:MOST_REASON_BYTES].decode(errors="ignore")


def part_left(core: int, memory: int, memory_units: int) -> float:
    """Returns what is left of a GPU, 0 to 1, by what is free of its core and memory units."""
    return (core / CORE_UNITS_PER_GPU + memory / memory_units) / 2


def added(parts: Iterable[float]) -> float:
    """Returns the sum, rounded after each as C does it; `sum` of newer Pythons rounds once."""
    total = 0.0
    for each in parts:
        total += each
    return total


#: Says where on a node a pod would be; raises `VgpuError` for a pod that asks for what cannot be.
Planner = Callable[[NodeView, PodRequest], Plan | Refusal]
