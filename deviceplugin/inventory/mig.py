"""Whether a GPU is in MIG mode, and into which MIG devices it is cut, as NVML says.

A GPU whose mode NVML cannot tell for another reason than that it has none fails as a whole: it must
not be given whole by mistake. A MIG device that NVML fails for is left out alone. Its profile is
what its name ends in; attributes that this driver does not tell are taken from the profile, as far
as that says them.
"""

import re
from dataclasses import replace
from typing import Any

from deviceplugin.model.gpus import Gpu, MigPart, SickGpu

from .nvml_answers import (
    CANNOT_TELL,
    INVALID_ARGUMENT,
    NOT_FOUND,
    error_code,
    memory_bytes,
    text,
)

_ENABLED = 1  # NVML_DEVICE_MIG_ENABLE
_PROFILE = re.compile(r"\bMIG ((?:(?P<compute>\d+)c\.)?(?P<gpu>\d+)g\.\d+gb\S*)$")


def mig_devices(pynvml: Any, handle: Any, gpu: Gpu) -> tuple[Gpu, list[SickGpu]]:
    """Returns a GPU with what NVML says of MIG on it, and which MIG devices fail.

    Raises:
        NVMLError: NVML cannot tell its mode or how many MIG devices it may have.
    """
    try:
        mode, _ = pynvml.nvmlDeviceGetMigMode(handle)
    except AttributeError:
        return gpu, []
    except pynvml.NVMLError as error:
        if error_code(error) in CANNOT_TELL:
            return gpu, []
        raise
    if mode != _ENABLED:
        return replace(gpu, is_mig_capable=True), []
    gpu = replace(gpu, is_mig_capable=True, is_mig_enabled=True)
    found: list[Gpu] = []
    sick: list[SickGpu] = []
    for number in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            part = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number)
        except pynvml.NVMLError as error:
            if error_code(error) in (NOT_FOUND, INVALID_ARGUMENT):
                continue  # numbers may have gaps
            sick.append(SickGpu(gpu.index, "", f"of MIG device {number} NVML says: {error}"))
            continue
        device = _describe(pynvml, part, number, gpu)
        if isinstance(device, SickGpu):
            sick.append(device)
        else:
            found.append(device)
    return replace(gpu, mig_devices=tuple(found)), sick


def _describe(pynvml: Any, handle: Any, number: int, gpu: Gpu) -> Gpu | SickGpu:
    uuid = ""
    try:
        uuid = text(pynvml.nvmlDeviceGetUUID(handle))
        name = text(pynvml.nvmlDeviceGetName(handle))
        profile = _PROFILE.search(name)
        if profile is None:
            return SickGpu(
                gpu.index,
                uuid,
                f"the name {name!r} of MIG device {number} does not end in a MIG profile",
            )
        part = MigPart(
            parent_uuid=gpu.uuid,
            number=number,
            profile=profile[1],
            gpu_instance=int(pynvml.nvmlDeviceGetGpuInstanceId(handle)),
            compute_instance=int(pynvml.nvmlDeviceGetComputeInstanceId(handle)),
            gpu_slices=int(profile["gpu"]),
            compute_slices=int(profile["compute"] or profile["gpu"]),
        )
        size_bytes = memory_bytes(pynvml, handle)
    except pynvml.NVMLError as error:
        return SickGpu(gpu.index, uuid, f"of MIG device {number} NVML says: {error}")
    return replace(
        gpu,
        uuid=uuid,
        name=name,
        memory_bytes=size_bytes,
        is_mig_capable=False,
        is_mig_enabled=False,
        mig=_with_sizes(pynvml, handle, part),
    )


def _with_sizes(pynvml: Any, handle: Any, part: MigPart) -> MigPart:
    try:
        said = pynvml.nvmlDeviceGetAttributes_v2(handle)
    except (pynvml.NVMLError, AttributeError):
        return part
    return replace(
        part,
        multiprocessors=int(said.multiprocessorCount),
        gpu_slices=int(said.gpuInstanceSliceCount),
        compute_slices=int(said.computeInstanceSliceCount),
        copy_engines=int(said.sharedCopyEngineCount),
        decoders=int(said.sharedDecoderCount),
        encoders=int(said.sharedEncoderCount),
        jpeg_engines=int(said.sharedJpegCount),
        optical_flow_engines=int(said.sharedOfaCount),
    )
