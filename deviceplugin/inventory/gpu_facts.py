"""What NVML says of one GPU: the facts that decide, and those that are only nice to know.

A fact that decides (UUID, name, memory, MIG mode) must be known, so any error of NVML stands for
the whole GPU. What is nice to know (places, versions, attributes) may be missing or not supported
by this GPU, driver or version of the bindings; then it is unknown. Only a GPU that is lost or needs
a reset is so whatever was asked.
"""

from typing import Any

from deviceplugin.model.gpus import Gpu, SickGpu

from .mig import mig_devices
from .nvml_answers import ask, text

_NUMA_MASK_WORDS = 2  # 64-bit words: room for 128 NUMA nodes
_SCOPE_NODE = 0  # NVML_AFFINITY_SCOPE_NODE
#: NVML_DEVICE_ARCH_*, named as the label nvidia.com/gpu.family is.
_ARCHITECTURES = {
    2: "kepler",
    3: "maxwell",
    4: "pascal",
    5: "volta",
    6: "turing",
    7: "ampere",
    8: "ada-lovelace",
    9: "hopper",
    10: "blackwell",
}


def describe(
    pynvml: Any, index: int, driver: str, cuda_version: tuple[int, int] | None
) -> tuple[Gpu | None, Any, list[SickGpu]]:
    """Returns a GPU with its handle, and what of it fails.

    The GPU is None where it fails as a whole; where it does not, what fails are MIG devices of it.

    Args:
        driver: its version.
        cuda_version: the newest CUDA that it serves.
    """
    uuid = ""
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        uuid = text(pynvml.nvmlDeviceGetUUID(handle))
        capability = ask(pynvml, "nvmlDeviceGetCudaComputeCapability", handle)
        gpu = Gpu(
            index=index,
            uuid=uuid,
            name=text(pynvml.nvmlDeviceGetName(handle)),
            memory_bytes=int(pynvml.nvmlDeviceGetMemoryInfo(handle).total),
            numa_node=_numa_node(pynvml, handle),
            minor=ask(pynvml, "nvmlDeviceGetMinorNumber", handle),
            driver=driver,
            compute_major=int(capability[0]) if capability else None,
            compute_minor=int(capability[1]) if capability else None,
            cuda_version=cuda_version,
            architecture=_ARCHITECTURES.get(
                ask(pynvml, "nvmlDeviceGetArchitecture", handle) or 0, ""
            ),
        )
        gpu, sick = mig_devices(pynvml, handle, gpu)
    except pynvml.NVMLError as error:
        return None, None, [SickGpu(index, uuid, f"NVML says: {error}")]
    return gpu, handle, sick


def _numa_node(pynvml: Any, handle: Any) -> int | None:
    words = ask(pynvml, "nvmlDeviceGetMemoryAffinity", handle, _NUMA_MASK_WORDS, _SCOPE_NODE)
    for number, word in enumerate(words or ()):
        if int(word):
            mask = int(word)
            return number * 64 + (mask & -mask).bit_length() - 1
    return None
