"""What the agent needs to know of a GPU, wherever it learns it.

A MIG device is a `Gpu` of its own, whose `mig` says which part of which GPU it is; the GPU that is
cut lists its MIG devices. So whatever is shared, whole GPU or MIG device, has one type.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

#: Of a GPU that a container holds and this node does not have any more.
UNKNOWN_INDEX = -1


@dataclass(frozen=True, slots=True)
class MigPart:
    """Which part of a GPU a MIG device is; NVML's numbers and counts.

    Attributes:
        parent_uuid: of the GPU that is cut.
        number: of the MIG device among those of its GPU.
        profile: as NVIDIA writes it, for example ``1g.5gb``, ``1g.5gb+me`` or ``1c.3g.20gb``.
        gpu_instance: NVML's id of the GPU instance.
        compute_instance: NVML's id of the compute instance in it.
        gpu_slices: of the GPU instance (``slices.gi``).
        compute_slices: of the compute instance (``slices.ci``).
    """

    parent_uuid: str
    number: int
    profile: str
    gpu_instance: int
    compute_instance: int
    multiprocessors: int = 0
    gpu_slices: int = 0
    compute_slices: int = 0
    copy_engines: int = 0
    decoders: int = 0
    encoders: int = 0
    jpeg_engines: int = 0
    optical_flow_engines: int = 0


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU, or one MIG device.

    Attributes:
        index: of the GPU, as config and people know it; a MIG device has that of its GPU.
        name: the product, as NVML says it; empty where it does not tell.
        memory_bytes: 0 where NVML does not tell.
        numa_node: None where NVML does not tell.
        context_bytes: what one context is known to cost; 0 where that is for containers to measure.
        driver: its version; empty where NVML does not tell.
        cuda_version: the newest CUDA that the driver serves, major and minor; None where NVML does
            not tell.
        compute_major: of its compute capability; None where NVML does not tell.
        compute_minor: the same.
        architecture: in lower case, for example ``ampere``; empty where NVML does not tell.
        minor: n of its node /dev/nvidia<n>; None where NVML does not tell.
        closeness: how close the node's other GPUs are, by UUID, on the scale of
            `topology.closeness`; one that is missing is as far as can be. Never changed,
            and no part of what makes two values equal: a neighbour that comes leaves a GPU what it
            was.
        is_mig_capable: it can be cut.
        is_mig_enabled: it is in MIG mode, so it cannot be given whole.
        mig_devices: what it is cut into, by number.
        mig: of a MIG device; None of a GPU.
        nvml_index: as NVML counts it now, `UNKNOWN_INDEX` where it does not list it, None where it
            is ``index``. No part of what makes two values equal.
    """

    index: int
    uuid: str
    name: str
    memory_bytes: int
    numa_node: int | None = None
    context_bytes: int = 0
    driver: str = ""
    minor: int | None = None
    compute_major: int | None = None
    closeness: Mapping[str, int] = field(default_factory=dict, compare=False)
    cuda_version: tuple[int, int] | None = None
    compute_minor: int | None = None
    architecture: str = ""
    is_mig_capable: bool = False
    is_mig_enabled: bool = False
    mig_devices: tuple["Gpu", ...] = ()
    mig: MigPart | None = None
    nvml_index: int | None = field(default=None, compare=False)

    @property
    def runtime_index(self) -> int:
        """By which a container's runtime knows it, which asks NVML; `UNKNOWN_INDEX` for none."""
        return self.index if self.nvml_index is None else self.nvml_index


@dataclass(frozen=True, slots=True)
class SickGpu:
    """A GPU, or a MIG device of it, that cannot be used now.

    Attributes:
        index: of the GPU.
        uuid: empty where not even that is known.
        reason: as a phrase.
        hangs: a call of NVML for it does not return.
    """

    index: int
    uuid: str
    reason: str
    hangs: bool = False

    def __str__(self) -> str:
        return f"{self.index} ({self.uuid})" if self.uuid else str(self.index)


@dataclass(frozen=True, slots=True)
class GpuListing:
    """What the node has at one moment.

    Attributes:
        gpus: those that work, in the order of their indexes.
        sick: those that do not.
    """

    gpus: tuple[Gpu, ...]
    sick: tuple[SickGpu, ...] = ()


class Inventory(Protocol):
    """Lists the GPUs of this node."""

    def gpus(self) -> tuple[Gpu, ...]:
        """Returns those that work, in the order of their indexes.

        Raises:
            InventoryError: they cannot be listed.
        """
        ...

    def listing(self) -> GpuListing:
        """Returns those that work and those that do not.

        Raises:
            InventoryError: none can be listed.
            DriverReplacedError: only a new process can list them.
        """
        ...
