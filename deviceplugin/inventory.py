"""Which GPUs this node has, by NVML.

Everything else takes the `Inventory` protocol, so tests and tools can bring GPUs of their own. A
simulated machine needs nothing special: its NVML is loaded through the same library search path.
"""

from typing import Any

from libvgpu.errors import InventoryError

from .gpus import Gpu, Inventory

__all__ = ["Gpu", "Inventory", "NvmlInventory"]

_NUMA_MASK_WORDS = 2  # 64-bit words: room for 128 NUMA nodes
_SCOPE_NODE = 0  # NVML_AFFINITY_SCOPE_NODE


class NvmlInventory:
    """The GPUs that NVML shows."""

    def gpus(self) -> tuple[Gpu, ...]:
        """Returns them in the order of their indexes.

        Raises:
            InventoryError: there is no NVML, or it fails.
        """
        import pynvml  # late: tools that never ask for GPUs start faster

        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            raise InventoryError(
                f"the GPUs of this node cannot be listed: NVML says {error}",
                hint="install the NVIDIA driver, or use a simulated machine "
                "(vgpuctl sim run SPEC -- COMMAND)",
            ) from None
        try:
            count = pynvml.nvmlDeviceGetCount()
            return tuple(_describe(pynvml, index) for index in range(count))
        except pynvml.NVMLError as error:
            raise InventoryError(f"NVML fails while listing the GPUs: {error}") from None
        finally:
            pynvml.nvmlShutdown()


def _describe(pynvml: Any, index: int) -> Gpu:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    return Gpu(
        index=index,
        uuid=_text(pynvml.nvmlDeviceGetUUID(handle)),
        name=_text(pynvml.nvmlDeviceGetName(handle)),
        memory_bytes=int(pynvml.nvmlDeviceGetMemoryInfo(handle).total),
        numa_node=_numa_node(pynvml, handle),
    )


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _numa_node(pynvml: Any, handle: Any) -> int | None:
    try:
        words = pynvml.nvmlDeviceGetMemoryAffinity(handle, _NUMA_MASK_WORDS, _SCOPE_NODE)
    except (pynvml.NVMLError, AttributeError):  # not every driver or NVML has it
        return None
    for number, word in enumerate(words):
        if int(word):
            mask = int(word)
            return number * 64 + (mask & -mask).bit_length() - 1
    return None
