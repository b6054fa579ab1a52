"""What NVML says of the processes on GPUs and of the memory they hold.

A process may stand in several of NVML's lists (compute, graphics, clients of MPS) with the same
figure, so it counts once, with the largest. NVML may not know a figure; then it is None. What one
GPU does not answer, or a call that does not return for it, concerns that GPU alone. NVML is opened
and closed around each check: whoever keeps it open would keep the health watch from opening it
again after a GPU was lost, and while that one has it open this costs next to nothing.
"""

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from deviceplugin.inventory.nvml_calls import NvmlCalls
from libvgpu.errors import InventoryError

_LISTS = ("Compute", "Graphics", "MPSCompute")
#: An older driver has older functions only.
_VERSIONS = ("_v3", "_v2")


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One GPU at one moment.

    Attributes:
        memory_bytes: by pid as NVML knows it; None where NVML cannot say.
        used_bytes: of the whole GPU; None where NVML cannot say, or no process is there.
    """

    memory_bytes: Mapping[int, int | None]
    used_bytes: int | None


def read_gpus(uuids: Iterable[str], calls: NvmlCalls[str] | None = None) -> dict[str, GpuReading]:
    """Returns a reading of each GPU that answers.

    Args:
        calls: how NVML is asked; of whoever asks again and again the same.

    Raises:
        InventoryError: there is no NVML, or it does not answer.
    """
    import pynvml  # late: tools that never ask for GPUs start faster

    calls = NvmlCalls() if calls is None else calls
    try:
        answers = calls.ask(lambda nvml: {uuid: partial(_reading, nvml, uuid) for uuid in uuids})
    except pynvml.NVMLError as error:
        raise InventoryError(f"the GPUs' processes cannot be listed: NVML says {error}") from None
    # What is wrong with the others is the health watch's business.
    return {uuid: said for uuid, said in answers.items() if isinstance(said, GpuReading)}


def _reading(pynvml: Any, uuid: str) -> GpuReading | None:
    try:
        return _read(pynvml, pynvml.nvmlDeviceGetHandleByUUID(uuid))
    except pynvml.NVMLError:
        return None


def _read(pynvml: Any, handle: Any) -> GpuReading:
    memory_bytes: dict[int, int | None] = {}
    for name in _LISTS:  # those of MPS are not in the first one with every driver
        for process in _list(pynvml, name, handle):
            pid, used = int(process.pid), process.usedGpuMemory
            known = memory_bytes.get(pid)
            used = None if used is None else int(used)
            memory_bytes[pid] = used if known is None else max(known, used or 0)
    used_bytes: int | None = None
    if memory_bytes:
        with contextlib.suppress(pynvml.NVMLError):
            used_bytes = int(pynvml.nvmlDeviceGetMemoryInfo(handle).used)
    return GpuReading(memory_bytes, used_bytes)


def _list(pynvml: Any, name: str, handle: Any) -> list[Any]:
    """Returns one of NVML's lists, the newest version there is.

    Raises:
        NVMLError: the GPU does not answer.
    """
    for version in _VERSIONS:
        ask = getattr(pynvml, f"nvmlDeviceGet{name}RunningProcesses{version}", None)
        if ask is None:
            continue
        try:
            return list(ask(handle))
        except (pynvml.NVMLError_FunctionNotFound, pynvml.NVMLError_NotSupported):
            continue
        except pynvml.NVMLError_InsufficientSize:
            return list(ask(handle))  # more came between its two calls; it asks for the size again
    return []
