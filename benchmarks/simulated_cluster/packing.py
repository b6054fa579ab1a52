"""Arrivals of small and whole-GPU pods, and how an off-line best-fit places the same.

Off-line best-fit knows every GPU of the cluster at every moment, and nothing is ever on its way: a
fraction goes to the GPU that has the least left of it afterwards, whole GPUs to the node with the
fewest empty ones that has enough. `packed_again` knows all pods beforehand, too, and places the
largest first on empty nodes: nobody who meets pods one by one can do that.

Pure; the chance is the caller's.
"""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from .machines import CORE, MEMORY
from .pod_shapes import Shape

#: Percent of a GPU -> how many of the first 218 pods with GPUs of `openb_pod_list_default.csv`, the
#: trace of a production cluster that Alibaba published for "Beware of Fragmentation" (USENIX ATC
#: 2023), counted in classes. Only sizes are taken from it: not order, times or memory.
RECORDED_SIZES: Mapping[int, int] = {10: 6, 22: 12, 32: 12, 46: 30, 60: 6, 81: 7, 100: 143, 800: 2}


@dataclass(frozen=True, slots=True)
class Wanted:
    """What one pod asks for; ``gpus`` whole ones, or else units of one."""

    core: int
    memory: int
    gpus: int = 0

    def shape(self) -> Shape:
        """Returns it as a pod."""
        if self.gpus:
            return Shape([{CORE: 100 * self.gpus}])
        return Shape([{CORE: self.core, MEMORY: self.memory}])

    @property
    def load(self) -> float:
        """How much of GPUs it is, by the larger half, where memory is of 80 units."""
        return self.gpus or max(self.core / 100, self.memory / 80)


def recorded(chance: random.Random) -> Wanted:
    """Returns a pod of a recorded size; its memory is the same part of a GPU as its core."""
    (percent,) = chance.choices(list(RECORDED_SIZES), list(RECORDED_SIZES.values()))
    if percent >= 100:
        return Wanted(0, 0, percent // 100)
    return Wanted(percent, max(1, percent * 80 // 100))


def made_up(chance: random.Random) -> Wanted:
    """Returns a random pod: mostly small, core and memory of their own."""
    kind = chance.random()
    if kind < 0.75:
        return Wanted(chance.choice((5, 10, 15, 20, 25, 30, 40)), chance.choice((4, 8, 12, 16, 24)))
    if kind < 0.9:
        return Wanted(50, 40)
    return Wanted(0, 0, chance.choice((1, 1, 1, 2, 4)))


class BestFit:
    """Nodes with equal GPUs, filled one pod after the other."""

    def __init__(self, nodes: int, gpus: int, units: int) -> None:
        """Is empty.

        Args:
            units: of memory, of each GPU.
        """
        self._units = units
        self._free = [[(100, units)] * gpus for _ in range(nodes)]
        self._held: dict[int, tuple[int, Sequence[int], Wanted]] = {}

    def place(self, pod: int, wanted: Wanted) -> bool:
        """Places a pod; returns whether there was room."""
        found = self._whole(wanted.gpus) if wanted.gpus else self._shared(wanted)
        if found is None:
            return False
        node, gpus = found
        for gpu in gpus:
            core, memory = self._free[node][gpu]
            left = (0, 0) if wanted.gpus else (core - wanted.core, memory - wanted.memory)
            self._free[node][gpu] = left
        self._held[pod] = node, gpus, wanted
        return True

    def end(self, pod: int) -> None:
        """Frees what a pod has; one that was not placed has nothing."""
        held = self._held.pop(pod, None)
        if held is None:
            return
        node, gpus, wanted = held
        for gpu in gpus:
            core, memory = self._free[node][gpu]
            back = (100, self._units) if wanted.gpus else (wanted.core, wanted.memory)
            self._free[node][gpu] = core + back[0], memory + back[1]

    @property
    def left_whole(self) -> int:
        """How many GPUs nobody has anything of."""
        return sum(each == (100, self._units) for node in self._free for each in node)

    def _shared(self, wanted: Wanted) -> tuple[int, Sequence[int]] | None:
        best: tuple[Fraction, int, int] | None = None
        for node, gpus in enumerate(self._free):
            for gpu, (core, memory) in enumerate(gpus):
                if core >= wanted.core and memory >= wanted.memory:
                    left = Fraction(core - wanted.core, 100)
                    left += Fraction(memory - wanted.memory, self._units)
                    if best is None or left < best[0]:
                        best = left, node, gpu
        return (best[1], (best[2],)) if best is not None else None

    def _whole(self, count: int) -> tuple[int, Sequence[int]] | None:
        best: tuple[int, int, Sequence[int]] | None = None
        for node, gpus in enumerate(self._free):
            empty = [i for i, each in enumerate(gpus) if each == (100, self._units)]
            if len(empty) >= count and (best is None or len(empty) < best[0]):
                best = len(empty), node, empty[:count]
        return (best[1], best[2]) if best is not None else None


def packed_again(nodes: int, gpus: int, units: int, pods: Iterable[Wanted]) -> int:
    """Returns how many GPUs are left whole where all pods are placed at once, the largest first."""
    fresh = BestFit(nodes, gpus, units)
    for number, wanted in enumerate(sorted(pods, key=lambda each: each.load, reverse=True)):
        fresh.place(number, wanted)
    return fresh.left_whole
