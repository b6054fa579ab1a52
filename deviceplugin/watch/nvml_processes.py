"""What NVML says of the processes on GPUs and of the memory they hold.

A process may stand in several of NVML's lists (compute, graphics, clients of MPS) with the same
figure, so it counts once, with the largest. NVML may not know a figure; then it is None. What one
GPU does not answer concerns that GPU alone. NVML is opened and closed around each check: whoever
keeps it open would keep the health watch from opening it again after a GPU was lost, and while that
one has it open this costs next to nothing.
"""

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from deviceplugin.inventory.nvml_answers import list_processes
from libvgpu.errors import InventoryError

_LISTS = ("Compute", "Graphics", "MPSCompute")


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One GPU at one moment.

    Attributes:
        memory_bytes: by pid as NVML knows it; None where NVML cannot say.
        used_bytes: of the whole GPU; None where NVML cannot say, or no process is there.
    """

    memory_bytes: Mapping[int, int | None]
    used_bytes: int | None


def read_gpus(uuids: Iterable[str]) -> dict[str, GpuReading]:
    """Returns a reading of each GPU that answers.

    Raises:
        InventoryError: there is no NVML.
    """
    import pynvml  # late: tools that never ask for GPUs start faster

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise InventoryError(f"the GPUs' processes cannot be listed: NVML says {error}") from None
    try:
        found = {}
        for uuid in uuids:
            try:
                found[uuid] = _read(pynvml, pynvml.nvmlDeviceGetHandleByUUID(uuid))
            except pynvml.NVMLError:
                continue  # its health is another's business
        return found
    finally:
        pynvml.nvmlShutdown()


def _read(pynvml: Any, handle: Any) -> GpuReading:
    memory_bytes: dict[int, int | None] = {}
    for name in _LISTS:  # those of MPS are not in the first one with every driver
        for process in list_processes(pynvml, name, handle):
            pid, used = int(process.pid), process.usedGpuMemory
            known = memory_bytes.get(pid)
            used = None if used is None else int(used)
            memory_bytes[pid] = used if known is None else max(known, used or 0)
    used_bytes: int | None = None
    if memory_bytes:
        with contextlib.suppress(pynvml.NVMLError):
            used_bytes = int(pynvml.nvmlDeviceGetMemoryInfo(handle).used)
    return GpuReading(memory_bytes, used_bytes)
