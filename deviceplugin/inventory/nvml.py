"""Which GPUs this node has and how they are connected, by NVML.

Everything else takes the `Inventory` protocol, so tests and tools can bring GPUs of their own. A
simulated machine needs nothing special: its NVML is loaded through the same library search path.

A GPU that NVML fails for is left out with the reason, and the others are listed (`gpu_facts`). Only
where NVML itself fails is there no list at all.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from deviceplugin.model.gpus import Gpu, GpuListing, Inventory, SickGpu
from libvgpu.errors import DriverReplacedError, InventoryError

from .gpu_facts import describe
from .nvlinks import joining, read_links
from .nvml_answers import LIB_RM_VERSION_MISMATCH, ask, error_code, text
from .topology import UNKNOWN, closeness

__all__ = ["Gpu", "GpuListing", "Inventory", "NvmlInventory", "SickGpu"]


class NvmlInventory:
    """The GPUs that NVML shows; used by one thread at a time."""

    def __init__(self) -> None:
        """Asks nothing yet."""
        #: How close the GPUs of the last listing are: hundreds of calls on a node of eight.
        self._near: dict[str, dict[str, int]] = {}

    def gpus(self) -> tuple[Gpu, ...]:
        """Returns those that work, in the order of their indexes.

        Raises:
            InventoryError: there is no NVML, or it fails.
        """
        return self.listing().gpus

    def listing(self) -> GpuListing:
        """Returns the GPUs that work and those that do not.

        Raises:
            InventoryError: there is no NVML, or it fails.
            DriverReplacedError: this process has the NVML of another driver than the kernel's.
        """
        import pynvml  # late: tools that never ask for GPUs start faster

        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            raise _cannot_list(error) from None
        try:
            driver = text(ask(pynvml, "nvmlSystemGetDriverVersion") or "")
            cuda_version = _cuda_version(pynvml)
            described = [
                describe(pynvml, index, driver, cuda_version)
                for index in range(pynvml.nvmlDeviceGetCount())
            ]
            there = [(gpu, handle) for gpu, handle, _ in described if gpu is not None]
            if self._near.keys() != {gpu.uuid for gpu, _ in there}:
                gpus, handles = [gpu for gpu, _ in there], [handle for _, handle in there]
                self._near = _closeness(pynvml, gpus, handles)
            connected = tuple(_connected(gpu, self._near[gpu.uuid]) for gpu, _ in there)
            return GpuListing(connected, tuple(each for _, _, sick in described for each in sick))
        except pynvml.NVMLError as error:
            raise InventoryError(f"NVML fails while listing the GPUs: {error}") from None
        finally:
            pynvml.nvmlShutdown()


def _cannot_list(error: Exception) -> InventoryError:
    said = f"the GPUs of this node cannot be listed: NVML says {error}"
    if error_code(error) == LIB_RM_VERSION_MISMATCH:
        return DriverReplacedError(
            said,
            hint="the driver was replaced under this process; only a new one, in a new container, "
            "loads the library of the new driver",
        )
    return InventoryError(
        said,
        hint="install the NVIDIA driver, or use a simulated machine "
        "(vgpuctl sim run SPEC -- COMMAND)",
    )


def _cuda_version(pynvml: Any) -> tuple[int, int] | None:
    """Returns the newest CUDA that the driver serves; NVML says 12040 for 12.4."""
    said = ask(pynvml, "nvmlSystemGetCudaDriverVersion_v2")
    return (int(said) // 1000, int(said) % 1000 // 10) if said else None


def _closeness(
    pynvml: Any, gpus: Sequence[Gpu], handles: Sequence[Any]
) -> dict[str, dict[str, int]]:
    """Returns of each GPU how close the others are, by UUID."""
    known = partial(_unless_it_fails, pynvml)
    links = read_links(known, handles)
    near: dict[str, dict[str, int]] = {gpu.uuid: {} for gpu in gpus}
    for a in range(len(gpus)):
        for b in range(a + 1, len(gpus)):
            level = known("nvmlDeviceGetTopologyCommonAncestor", handles[a], handles[b])
            numa = gpus[a].numa_node, gpus[b].numa_node
            found = closeness(joining(links[a], links[b]), level, numa)
            if found != UNKNOWN:
                near[gpus[a].uuid][gpus[b].uuid] = near[gpus[b].uuid][gpus[a].uuid] = found
    return near


def _connected(gpu: Gpu, row: dict[str, int]) -> Gpu:
    """Returns a GPU that knows how close the others are."""
    parts = tuple(replace(part, closeness=row) for part in gpu.mig_devices)
    return replace(gpu, closeness=row, mig_devices=parts)


def _unless_it_fails(pynvml: Any, function: str, *arguments: Any) -> Any:
    """Like `ask`; of a GPU that is lost by now the next listing tells."""
    try:
        return ask(pynvml, function, *arguments)
    except pynvml.NVMLError:
        return None
