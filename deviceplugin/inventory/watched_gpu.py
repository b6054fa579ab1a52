"""One GPU or MIG device as the health watch has it: whom to ask, and which events mean it.

NVML reports errors of a MIG device as events of its GPU that name the GPU instance and the compute
instance; one that names neither means the whole GPU, so every MIG device of it.
"""

import ctypes
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from .nvml_answers import ask, told

#: Of an event that means no instance, or any.
ANY_INSTANCE = 0xFFFFFFFF
_TEMPERATURE_OF_GPU = 0  # NVML_TEMPERATURE_GPU
_MIG_PREFIX = "MIG-"


@dataclass(frozen=True, slots=True)
class WatchedGpu:
    """What NVML knows it by while it is open.

    Attributes:
        handle: of the GPU or MIG device.
        gpu_handle: of the GPU that it is, or is a part of.
        gpu_instance: of a MIG device; `ANY_INSTANCE` of a GPU, and where NVML does not tell.
        compute_instance: the same.
    """

    uuid: str
    handle: Any
    gpu_handle: Any
    gpu_instance: int = ANY_INSTANCE
    compute_instance: int = ANY_INSTANCE

    def is_meant(self, event: Any) -> bool:
        """Returns whether an event of its GPU is one of its own."""
        return _agree(self.gpu_instance, event.gpuInstanceId) and _agree(
            self.compute_instance, event.computeInstanceId
        )


def find(pynvml: Any, uuid: str) -> WatchedGpu:
    """Returns a GPU or MIG device.

    Raises:
        NVMLError: NVML does not know it, or fails for it.
    """
    handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
    if not uuid.startswith(_MIG_PREFIX):
        return WatchedGpu(uuid, handle, handle)
    return WatchedGpu(
        uuid,
        handle,
        pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle),
        _instance(ask(pynvml, "nvmlDeviceGetGpuInstanceId", handle)),
        _instance(ask(pynvml, "nvmlDeviceGetComputeInstanceId", handle)),
    )


def problem_of(pynvml: Any, gpu: WatchedGpu) -> str:
    """Returns what is wrong with a GPU as NVML says, empty where it is healthy."""
    try:
        # These need the GPU itself, unlike its UUID.
        if told(pynvml, "nvmlDeviceGetMemoryInfo", gpu.handle) is None:
            ask(pynvml, "nvmlDeviceGetTemperature", gpu.gpu_handle, _TEMPERATURE_OF_GPU)
    except pynvml.NVMLError as error:
        return f"NVML says: {error}"
    try:
        (value,) = pynvml.nvmlDeviceGetFieldValues(
            gpu.gpu_handle, [pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION]
        )
    except (pynvml.NVMLError, AttributeError):
        return ""
    if value.nvmlReturn != pynvml.NVML_SUCCESS or not value.value.uiVal:
        return ""
    return f"NVML asks for recovery action {value.value.uiVal}"


def meant_by(event: Any, gpus: Iterable[WatchedGpu]) -> list[str]:
    """Returns the UUIDs of what an event means."""
    at = address(event.device)
    return [gpu.uuid for gpu in gpus if address(gpu.gpu_handle) == at and gpu.is_meant(event)]


def address(handle: Any) -> int:
    """Returns by what two handles of one GPU are told to be the same."""
    return ctypes.cast(handle, ctypes.c_void_p).value or 0


def _instance(said: Any) -> int:
    return ANY_INSTANCE if said is None else int(said)


def _agree(own: int, named: int) -> bool:
    return ANY_INSTANCE in (own, named) or own == named
