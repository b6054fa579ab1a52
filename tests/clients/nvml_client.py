"""A monitor's program on `nvidia-ml-py`: looks at every GPU once and prints what it saw as JSON."""

import json
from typing import Any

import pynvml as nvml


def look_at(index: int) -> dict[str, Any]:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    memory, memory_2 = (
        nvml.nvmlDeviceGetMemoryInfo(handle),
        nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2),
    )
    assert memory.used + memory.free == memory.total
    return {
        "name": nvml.nvmlDeviceGetName(handle),
        "uuid": nvml.nvmlDeviceGetUUID(handle),
        "bus_id": nvml.nvmlDeviceGetPciInfo(handle).busId,
        "total_bytes": [memory.total, memory_2.total],
        "celsius": nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
        "watts": nvml.nvmlDeviceGetPowerUsage(handle) // 1000,
        "percent": nvml.nvmlDeviceGetUtilizationRates(handle).gpu,
        "processes": [p.pid for p in nvml.nvmlDeviceGetComputeRunningProcesses(handle)],
    }


nvml.nvmlInit()
print(
    json.dumps(
        {
            "driver": nvml.nvmlSystemGetDriverVersion(),
            "cuda": nvml.nvmlSystemGetCudaDriverVersion(),
            "gpus": [look_at(index) for index in range(nvml.nvmlDeviceGetCount())],
        }
    )
)
nvml.nvmlShutdown()
