"""What the agent needs to know of a GPU, wherever it learns it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

#: Of a GPU that a container holds and this node does not have any more.
UNKNOWN_INDEX = -1


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU.

    Attributes:
        numa_node: None where NVML does not tell.
        context_bytes: what one context is known to cost; 0 where that is for containers to measure.
        driver: its version; empty where NVML does not tell.
        compute_major: of its compute capability; None where NVML does not tell.
        minor: n of its node /dev/nvidia<n>; None where NVML does not tell.
        closeness: how close the node's other GPUs are, by UUID, on the scale of
            `topology.closeness`; one that is missing is as far as can be. Never changed.
    """

    index: int
    uuid: str
    name: str
    memory_bytes: int
    numa_node: int | None = None
    context_bytes: int = 0
    driver: str = ""
    minor: int | None = None
    compute_major: int | None = None
    closeness: Mapping[str, int] = field(default_factory=dict, hash=False)


class Inventory(Protocol):
    """Lists the GPUs of this node."""

    def gpus(self) -> tuple[Gpu, ...]:
        """Returns them in the order of their indexes.

        Raises:
            InventoryError: they cannot be listed.
        """
        ...
