"""Which GPUs this node has and how they are connected, by NVML.

Everything else takes the `Inventory` protocol, so tests and tools can bring GPUs of their own. A
simulated machine needs nothing special: its NVML is loaded through the same library search path.

What is nice to know (places, links) may be missing or not supported by this GPU, driver or version
of the bindings. Then it is unknown, which is never an error.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from deviceplugin.log import event
from deviceplugin.model.gpus import Gpu, Inventory
from libvgpu.errors import InventoryError

from .nvlinks import joining, read_links
from .topology import UNKNOWN, closeness

__all__ = ["Gpu", "Inventory", "NvmlInventory"]

_NUMA_MASK_WORDS = 2  # 64-bit words: room for 128 NUMA nodes
_SCOPE_NODE = 0  # NVML_AFFINITY_SCOPE_NODE


class NvmlInventory:
    """The GPUs that NVML shows."""

    def gpus(self) -> tuple[Gpu, ...]:
        """Returns them in the order of their indexes, without those that fell off the bus.

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
            driver = _text(_ask(pynvml, "nvmlSystemGetDriverVersion") or "")
            count = pynvml.nvmlDeviceGetCount()
            found = [_describe(pynvml, index, driver) for index in range(count)]
            there = [each for each in found if each is not None]
            return _connected(pynvml, [gpu for gpu, _ in there], [handle for _, handle in there])
        except pynvml.NVMLError as error:
            raise InventoryError(f"NVML fails while listing the GPUs: {error}") from None
        finally:
            pynvml.nvmlShutdown()


def _ask(pynvml: Any, function: str, *arguments: Any) -> Any:
    """Returns what NVML says, None where it or the bindings cannot say it."""
    try:
        return getattr(pynvml, function)(*arguments)
    except (pynvml.NVMLError, AttributeError):
        return None


def _describe(pynvml: Any, index: int, driver: str) -> tuple[Gpu, Any] | None:
    """Returns a GPU and its handle, None where it is lost: the others must not suffer from it."""
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        gpu = Gpu(
            index=index,
            uuid=_text(pynvml.nvmlDeviceGetUUID(handle)),
            name=_text(pynvml.nvmlDeviceGetName(handle)),
            memory_bytes=int(pynvml.nvmlDeviceGetMemoryInfo(handle).total),
            numa_node=_numa_node(pynvml, handle),
            minor=_ask(pynvml, "nvmlDeviceGetMinorNumber", handle),
            driver=driver,
            compute_major=_compute_major(pynvml, handle),
        )
    except pynvml.NVMLError_GpuIsLost as error:
        event(
            logging.WARNING,
            "GPU left out: it fell off the bus",
            index=index,
            reason=str(error),
            hint="reset it, then restart the agent",
        )
        return None
    return gpu, handle


def _connected(pynvml: Any, gpus: Sequence[Gpu], handles: Sequence[Any]) -> tuple[Gpu, ...]:
    """Returns the GPUs, each with how close the others are."""
    links = read_links(partial(_ask, pynvml), handles)
    near: list[dict[str, int]] = [{} for _ in gpus]
    for a in range(len(gpus)):
        for b in range(a + 1, len(gpus)):
            level = _ask(pynvml, "nvmlDeviceGetTopologyCommonAncestor", handles[a], handles[b])
            numa = gpus[a].numa_node, gpus[b].numa_node
            found = closeness(joining(links[a], links[b]), level, numa)
            if found != UNKNOWN:
                near[a][gpus[b].uuid] = near[b][gpus[a].uuid] = found
    return tuple(replace(gpu, closeness=row) for gpu, row in zip(gpus, near, strict=True))


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _compute_major(pynvml: Any, handle: Any) -> int | None:
    capability = _ask(pynvml, "nvmlDeviceGetCudaComputeCapability", handle)
    return int(capability[0]) if capability else None


def _numa_node(pynvml: Any, handle: Any) -> int | None:
    words = _ask(pynvml, "nvmlDeviceGetMemoryAffinity", handle, _NUMA_MASK_WORDS, _SCOPE_NODE)
    for number, word in enumerate(words or ()):
        if int(word):
            mask = int(word)
            return number * 64 + (mask & -mask).bit_length() - 1
    return None
