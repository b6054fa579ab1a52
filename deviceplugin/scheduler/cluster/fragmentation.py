"""How large a pod would still fit, for each family: the largest rest of a GPU next to the sum.

A node is added up again when its revision has changed. Of one thread at a time.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from deviceplugin.model.units import CORE_UNITS_PER_GPU
from deviceplugin.scheduler.search.node_view import NodeView
from libvgpu.limits import Family

from .cluster import Cluster


@dataclass(frozen=True, slots=True)
class Free:
    """What is free of one family; bytes, and core units of which a GPU has 100.

    Attributes:
        largest_core: on one GPU.
        largest_memory: on one GPU.
        most_empty: GPUs that nobody has anything of, on one node.
        core: in sum.
        memory: in sum.
    """

    largest_core: int = 0
    largest_memory: int = 0
    most_empty: int = 0
    core: int = 0
    memory: int = 0

    def __or__(self, other: "Free") -> "Free":
        """Returns what is free on the nodes of both."""
        return Free(
            max(self.largest_core, other.largest_core),
            max(self.largest_memory, other.largest_memory),
            max(self.most_empty, other.most_empty),
            self.core + other.core,
            self.memory + other.memory,
        )

    @property
    def core_ratio(self) -> float:
        """The sum of core, 1 is a GPU."""
        return self.core / CORE_UNITS_PER_GPU


NOTHING = Free()


def free_of(view: NodeView) -> dict[Family, Free]:
    """Returns what is free of one node; GPUs of which nothing is given do not count."""
    found: dict[Family, Free] = {}
    for gpu in view.gpus:
        before = found.get(gpu.family, NOTHING)
        if gpu.problem or gpu.containers_left == 0:
            found[gpu.family] = before
            continue
        memory = gpu.memory * gpu.memory_unit_bytes
        found[gpu.family] = Free(
            max(before.largest_core, gpu.core if gpu.memory else 0),
            max(before.largest_memory, memory),
            before.most_empty + gpu.is_empty,
            before.core + gpu.core,
            before.memory + memory,
        )
    return found


class Fragmentation:
    """What is free of all nodes."""

    def __init__(self, cluster: Cluster) -> None:
        """Has looked at no node yet."""
        self._cluster = cluster
        self._known: dict[str, tuple[int, dict[Family, Free]]] = {}

    def look(self) -> dict[Family, Free]:
        """Returns what is free of each family that any node has."""
        known: dict[str, tuple[int, dict[Family, Free]]] = {}
        for name in self._cluster.nodes():
            found = self._cluster.view(name)
            if found is not None:
                revision, view = found
                before = self._known.get(name)
                same = before is not None and before[0] == revision
                known[name] = before if before and same else (revision, free_of(view))
        self._known = known
        return _together(free for _, free in known.values())


def _together(nodes: Iterable[dict[Family, Free]]) -> dict[Family, Free]:
    found: dict[Family, Free] = {}
    for node in nodes:
        for family, free in node.items():
            found[family] = found.get(family, NOTHING) | free
    return found
