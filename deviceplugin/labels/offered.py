"""What the labels are made of besides the GPUs themselves: what is offered of them, as values."""

from dataclasses import dataclass, field
from enum import StrEnum


class SharingStrategy(StrEnum):
    """How several containers are on one GPU; the values are those of the label."""

    NONE = "none"
    TIME_SLICING = "time-slicing"
    MPS = "mps"


@dataclass(frozen=True, slots=True)
class SharedResource:
    """Whole GPUs or MIG devices of one resource, shared in equal replicas or not at all.

    Attributes:
        uuids: of the GPUs or MIG devices that it stands for.
        replicas: of each; 1 where it is not shared.
        renamed: whether the kubelet knows it by another name, such as ``gpu.shared``.
    """

    uuids: frozenset[str]
    replicas: int = 1
    strategy: SharingStrategy = SharingStrategy.NONE
    renamed: bool = False


@dataclass(frozen=True, slots=True)
class FreeSlice:
    """What is free on one GPU that is shared in fractions.

    Attributes:
        place: which GPU it is, in the name of a label: its index, for a MIG device ``0.3``.
        family: ``vgpu`` or ``mps``.
        strategy: how its containers are on it.
        core_percent: free, of the GPU's compute.
        memory_bytes: free.
        total_bytes: of the GPU's memory.
    """

    uuid: str
    place: str
    family: str
    strategy: SharingStrategy
    core_percent: int
    memory_bytes: int
    total_bytes: int


@dataclass(frozen=True, slots=True)
class Offered:
    """What containers can ask for on this node.

    Attributes:
        domain: before the ``/`` of the resources' names, and of the labels that are ours.
    """

    domain: str = "nvidia.com"
    resources: tuple[SharedResource, ...] = ()
    slices: tuple[FreeSlice, ...] = ()
    mig_strategy: str = "none"


@dataclass(frozen=True, slots=True)
class VirtualGpu:
    """The driver of the host of a virtual machine that has a GPU of NVIDIA's vGPU."""

    host_version: str = ""
    host_branch: str = ""


@dataclass(frozen=True, slots=True)
class Machine:
    """What is known of the machine besides its GPUs.

    Attributes:
        kind: the type of the machine, ``unknown`` where nobody tells.
        mode: what its GPUs are for: ``compute``, ``graphics`` or ``unknown``.
        virtual_gpus: of NVIDIA's vGPU; None where nobody tells whether there are any.
    """

    kind: str = "unknown"
    mode: str = "unknown"
    virtual_gpus: tuple[VirtualGpu, ...] | None = field(default=None)
