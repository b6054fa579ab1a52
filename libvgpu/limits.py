"""The slice of one container as typed values: what `limits` says, for each of its devices."""

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Literal, cast, get_args

#: core_percent that means "a whole GPU": not capped.
WHOLE_CORE_PERCENT = 100


#: core_percent where none is reserved: the cap that holds while no arbiter says what others leave.
_LEFT_OVER_PERCENT = 1


class Family(IntEnum):
    """How a GPU is shared; the values stand in `limits` (VGPU_FAMILY_*)."""

    VGPU = 1
    MPS = 2


#: How configs, command lines, pages and files in JSON call a `ComputeMode`.
ComputeWord = Literal["strict", "elastic", "off"]
COMPUTE_WORDS: tuple[ComputeWord, ...] = get_args(ComputeWord)


class ComputeMode(IntEnum):
    """How the compute share is held; the values stand in `limits` (VGPU_COMPUTE_*)."""

    OFF = 0
    STRICT = 1
    ELASTIC = 2

    @property
    def word(self) -> ComputeWord:
        """What people call it."""
        return cast(ComputeWord, self.name.lower())

    @classmethod
    def of(cls, word: str) -> "ComputeMode":
        """Returns the mode that people call so; it must be one of `COMPUTE_WORDS`."""
        return cls[word.upper()]


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
        weight: of this container on a contended GPU; 0 counts there as 1, and says that no compute
            is reserved for it (`on_left_over`).
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

    @property
    def is_whole(self) -> bool:
        """Whether its share is all of a GPU's compute."""
        return self.core_percent >= WHOLE_CORE_PERCENT

    @property
    def reserved_percent(self) -> int:
        """The compute that is reserved for it: 0 where it has what others leave over."""
        return self.core_percent if self.weight else 0


def on_left_over(device: DeviceLimit) -> DeviceLimit:
    """Returns limits without reserved compute: it has what others leave over, and comes last.

    So the shim of any version reads it: the least share, elastic, with the least weight.
    """
    return replace(
        device, core_percent=_LEFT_OVER_PERCENT, compute_mode=ComputeMode.ELASTIC, weight=0
    )


@dataclass(frozen=True, slots=True)
class ContainerLimits:
    """The whole content of a `limits` file."""

    allocation_id: str
    family: Family
    devices: tuple[DeviceLimit, ...]
