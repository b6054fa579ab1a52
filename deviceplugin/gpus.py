"""What the agent needs to know of a GPU, wherever it learns it."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU.

    Attributes:
        numa_node: None where NVML does not tell.
        context_bytes: what one context is expected to cost; 0 lets the shim measure it.
    """

    index: int
    uuid: str
    name: str
    memory_bytes: int
    numa_node: int | None = None
    context_bytes: int = 0


class Inventory(Protocol):
    """Lists the GPUs of this node."""

    def gpus(self) -> tuple[Gpu, ...]:
        """Returns them in the order of their indexes.

        Raises:
            InventoryError: they cannot be listed.
        """
        ...
