"""What NVML says of the processes on GPUs and of the memory and the time they have.

A process may stand in several of NVML's lists (compute, graphics, clients of MPS) with the same
figure, so it counts once, with the largest. NVML may not know a figure; then it is None. What one
GPU does not answer, or a call that does not return for it, concerns that GPU alone. NVML is opened
and closed around each check: whoever keeps it open would keep the health watch from opening it
again after a GPU was lost, and while that one has it open this costs next to nothing.
"""

import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from deviceplugin.inventory.nvml_answers import list_processes
from deviceplugin.inventory.nvml_calls import NvmlCalls
from libvgpu.errors import InventoryError

from .gpu_time import TimeSample
from .pid_visibility import has_own_pid_namespace

_LISTS = ("Compute", "Graphics", "MPSCompute")


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One GPU at one moment.

    Attributes:
        memory_bytes: by pid as NVML knows it; None where NVML cannot say.
        used_bytes: of the whole GPU; None where NVML cannot say, or no process is there.
        unlisted_bytes: in use on it though NVML lists no process, as a driver does that leaves out
            what this PID namespace cannot see; asked for in such a namespace alone.
    """

    memory_bytes: Mapping[int, int | None]
    used_bytes: int | None
    unlisted_bytes: int = 0


def read_gpus(uuids: Iterable[str], calls: NvmlCalls[str] | None = None) -> dict[str, GpuReading]:
    """Returns a reading of each GPU that answers.

    Args:
        calls: how NVML is asked; of whoever asks again and again the same.

    Raises:
        InventoryError: there is no NVML, or it does not answer.
    """
    answers = _ask(dict.fromkeys(uuids, _reading), calls)
    # What is wrong with the others is the health watch's business.
    return {uuid: said for uuid, said in answers.items() if isinstance(said, GpuReading)}


def _ask(
    questions: Mapping[str, Callable[[Any, str], object]], calls: NvmlCalls[str] | None
) -> Mapping[str, object]:
    import pynvml  # late: tools that never ask for GPUs start faster

    calls = NvmlCalls() if calls is None else calls
    try:
        return calls.ask(
            lambda nvml: {uuid: partial(ask, nvml, uuid) for uuid, ask in questions.items()}
        )
    except pynvml.NVMLError as error:
        raise InventoryError(f"the GPUs' processes cannot be listed: NVML says {error}") from None


def read_times(
    since_us: Mapping[str, int], calls: NvmlCalls[str] | None = None
) -> dict[str, list[TimeSample]]:
    """Returns how busy processes kept each GPU that answers.

    Args:
        since_us: of each GPU, after which moment of the wall clock a sample must have ended.
        calls: how NVML is asked.

    Raises:
        InventoryError: there is no NVML, or it does not answer.
    """
    asked = {uuid: partial(_times, since_us=at_us) for uuid, at_us in since_us.items()}
    return {uuid: said for uuid, said in _ask(asked, calls).items() if isinstance(said, list)}


def _times(pynvml: Any, uuid: str, since_us: int) -> list[TimeSample]:
    try:
        handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        samples = pynvml.nvmlDeviceGetProcessUtilization(handle, since_us)
    except pynvml.NVMLError:  # none is newer; or a MIG device, whose processes it does not sample
        return []
    return [TimeSample(int(each.pid), int(each.timeStamp), int(each.smUtil)) for each in samples]


def _reading(pynvml: Any, uuid: str) -> GpuReading | None:
    try:
        return _read(pynvml, pynvml.nvmlDeviceGetHandleByUUID(uuid))
    except pynvml.NVMLError:
        return None


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
    unlisted_bytes = 0 if memory_bytes or not has_own_pid_namespace() else _in_use(pynvml, handle)
    return GpuReading(memory_bytes, used_bytes, unlisted_bytes)


def _in_use(pynvml: Any, handle: Any) -> int:
    """Returns what is used without the driver's own part, 0 where this NVML does not tell it."""
    version = getattr(pynvml, "nvmlMemory_v2", None)
    if version is None:
        return 0
    try:
        return int(pynvml.nvmlDeviceGetMemoryInfo(handle, version=version).used)
    except pynvml.NVMLError:
        return 0
