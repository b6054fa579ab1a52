"""What NVML says of one GPU: the facts that decide, and those that are only nice to know.

A fact that decides (UUID, name, memory, MIG mode) makes the GPU fail as a whole where NVML has an
error for it. Not so where NVML says that it cannot tell: a GPU that shares the host's memory (GB10)
has no memory of its own to tell of, and is given whole all the same. What is nice to know (places,
versions, attributes) is unknown after any error. Only a GPU that is lost or needs a reset is so
whatever was asked.
"""

from collections.abc import MutableMapping
from typing import Any

from deviceplugin.model.gpus import Gpu, SickGpu

from .mig import mig_devices
from .nvml_answers import ask, memory_bytes, text, told

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


#: A GPU, None where it fails as a whole, and what of it fails.
Described = tuple[Gpu | None, list[SickGpu]]


def describe(
    pynvml: Any,
    index: int,
    driver: str,
    cuda_version: tuple[int, int] | None,
    uuids: MutableMapping[int, str],
) -> Described:
    """Returns a GPU, and what of it fails.

    The GPU is None where it fails as a whole; where it does not, what fails are MIG devices of it.

    Args:
        driver: its version.
        cuda_version: the newest CUDA that it serves.
        uuids: takes its UUID as soon as that is known: a later call may not return.
    """
    uuid = ""
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        uuids[index] = uuid = text(pynvml.nvmlDeviceGetUUID(handle))
        capability = ask(pynvml, "nvmlDeviceGetCudaComputeCapability", handle)
        gpu = Gpu(
            index=index,
            uuid=uuid,
            name=text(told(pynvml, "nvmlDeviceGetName", handle) or ""),
            memory_bytes=memory_bytes(pynvml, handle),
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
        return None, [SickGpu(index, uuid, f"NVML says: {error}")]
    return gpu, sick


def _numa_node(pynvml: Any, handle: Any) -> int | None:
    words = ask(pynvml, "nvmlDeviceGetMemoryAffinity", handle, _NUMA_MASK_WORDS, _SCOPE_NODE)
    for number, word in enumerate(words or ()):
        if int(word):
            mask = int(word)
            return number * 64 + (mask & -mask).bit_length() - 1
    return None
