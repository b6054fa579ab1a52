"""The slice of one container as typed values: what `limits` says, for each of its devices."""

from dataclasses import dataclass
from enum import IntEnum

#: core_percent that means "a whole GPU": not capped.
WHOLE_CORE_PERCENT = 100


class Family(IntEnum):
    """How a GPU is shared; the values stand in `limits` (VGPU_FAMILY_*)."""

    VGPU = 1
    MPS = 2


class ComputeMode(IntEnum):
    """How the compute share is held; the values stand in `limits` (VGPU_COMPUTE_*)."""

    OFF = 0
    STRICT = 1
    ELASTIC = 2


@dataclass(frozen=True, slots=True)
class DeviceLimit:
    """One device of a container's slice.

    Attributes:
        uuid: NVML's name of the GPU or MIG device, ``GPU-…`` or ``MIG-…``.
        memory_limit_bytes: what all processes of the container together may hold.
        physical_bytes: the part of it backed by memory (limit ÷ overcommit); 0 means the same.
        context_bytes: what one context is expected to cost; 0 lets the shim measure it.
        block_bytes: what the GPU gives memory in; 0 lets the shim ask the driver.
        unaccounted_bytes: unaccounted memory: measured by the host beyond the ledger, charged too.
        core_percent: 1..100; 100 is not capped; 0 is left-overs only.
        compute_mode: see `ComputeMode`.
        weight: of this container on a contended GPU.
        mps_thread_percentage: CUDA_MPS_ACTIVE_THREAD_PERCENTAGE, 0 where MPS is not used.
        mps_pinned_bytes: CUDA_MPS_PINNED_DEVICE_MEM_LIMIT, 0 where it is not set.
        mps_pipe_directory: CUDA_MPS_PIPE_DIRECTORY as the container sees it, empty where it is
            no client of MPS.
    """

    uuid: str
    memory_limit_bytes: int
    physical_bytes: int = 0
    context_bytes: int = 0
    unaccounted_bytes: int = 0
    core_percent: int = WHOLE_CORE_PERCENT
    compute_mode: ComputeMode = ComputeMode.STRICT
    weight: int = 1
    mps_thread_percentage: int = 0
    mps_pinned_bytes: int = 0
    mps_pipe_directory: str = ""
    block_bytes: int = 0

    @property
    def is_mps_client(self) -> bool:
        """Whether the container's processes are clients of an MPS server there."""
        return bool(self.mps_pipe_directory)


@dataclass(frozen=True, slots=True)
class ContainerLimits:
    """The whole content of a `limits` file."""

    allocation_id: str
    family: Family
    devices: tuple[DeviceLimit, ...]
