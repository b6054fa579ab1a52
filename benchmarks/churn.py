"""Containers that come and go on one node: what the agent's calls take, and what it keeps of them.

A container asks for a share and for memory, both of random size; when as many live as the node is
to carry, one of them ends first, and its units are offered to the next, as the kubelet does. The
next comes as soon as the last has started: no node sees more than that.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from deviceplugin.testing.lean_kubelet import LeanPod
from deviceplugin.testing.lean_wire import Call

from .agent_node import RESOURCES, AgentNode
from .process import bytes_of, descriptors, files_below, memory, threads

MIB = 1 << 20
LIVE = 30
_CORE_UNITS = (10, 40)
_MEMORY_UNITS = (20, 100)
#: The agent gives a slice back seconds after podresources has stopped to list it.
_FREED_S = 30.0
#: Locks of GPUs, and files made ready for containers to come, are no containers'.
_IGNORED = frozenset({"arbiters", "spare"})


@dataclass(frozen=True, slots=True)
class Kept:
    """What the agent has while no container is there.

    Attributes:
        files: of the run directory, without what belongs to no container.
        state_bytes: of all files in the state directory.
    """

    resident_bytes: int
    descriptors: int
    threads: int
    files: int
    state_bytes: int

    @classmethod
    def of(cls, node: AgentNode) -> "Kept":
        """Measures a node."""
        return cls(
            memory(node.pid).resident_bytes,
            descriptors(node.pid),
            threads(node.pid),
            sum(_IGNORED.isdisjoint(path.parts) for path in files_below(node.run_dir)),
            bytes_of(files_below(node.state_dir)),
        )


@dataclass
class Churn:
    """The containers of one node.

    Attributes:
        live: the pods that are there.
        admitted: how many there have been.
    """

    node: AgentNode
    chance: random.Random
    live: list[LeanPod] = field(default_factory=list)
    admitted: int = 0

    def run(self, containers: int) -> list[Call]:
        """Lets containers come, and go where there would be too many; returns the calls.

        Raises:
            VgpuError: the agent refused one, though there was room; or it ended.
        """
        kubelet = self.node.kubelet
        kubelet.calls = []
        for _ in range(containers):
            if len(self.live) >= LIVE:
                kubelet.finish(self.live.pop(self.chance.randrange(len(self.live))))
            self.admitted += 1
            sizes = (self.chance.randint(*_CORE_UNITS), self.chance.randint(*_MEMORY_UNITS))
            limits = dict(zip(RESOURCES, sizes, strict=True))
            pod = kubelet.admit(f"pod-{self.admitted}", limits)
            self.live.append(pod)
            kubelet.start_container(pod)
        self.node.check()
        return kubelet.calls

    def end_all(self) -> None:
        """Ends every container and waits until the agent has freed all slices.

        It is offered their units, as when the next pod comes; else it would take its time.

        Raises:
            VgpuError: it does not in time.
        """
        for pod in self.live:
            self.node.kubelet.finish(pod)
        self.live = []
        kubelet = self.node.kubelet
        kubelet.prefer(kubelet.plugins[RESOURCES[0]], _CORE_UNITS[0])
        allocations = self.node.run_dir / "allocations"
        self.node.wait_for(
            "slices of ended containers are still there",
            lambda: not any(allocations.glob("*/meta.json")),
            _FREED_S,
        )


def quantile(values: Sequence[float], part: float) -> float:
    """Returns the smallest value that at least ``part`` of all do not exceed.

    Args:
        values: at least one.
        part: above 0, up to 1.
    """
    ordered = sorted(values)
    return ordered[max(0, -int(-part * len(ordered) // 1) - 1)]


def milliseconds(
    calls: Sequence[Call], method: str, which: Callable[[Sequence[float]], float]
) -> float:
    """Returns a figure of the calls of one method."""
    return which([call.seconds * 1e3 for call in calls if call.method == method])
