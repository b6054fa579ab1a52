"""What the config says about GPUs and MIG devices that are given whole, or as replicas."""

from dataclasses import dataclass
from enum import StrEnum

from .device_match import NamePattern

#: What a GPU is called that no pattern of ``resources.gpus`` names.
GPU_RESOURCE = "gpu"
#: What the names of MIG devices begin with in strategy ``mixed``; the profile follows.
MIG_PREFIX = "mig-"
#: Of one MPS server on a GPU, from Volta on.
MOST_MPS_CLIENTS = 48


class MigStrategy(StrEnum):
    """How MIG devices are named; the values are those of ``migStrategy``."""

    NONE = "none"
    SINGLE = "single"
    MIXED = "mixed"


class ReplicaKind(StrEnum):
    """Who divides a GPU between its replicas; the values are those of GFD's label."""

    TIME_SLICING = "time-slicing"
    MPS = "mps"


class Spread(StrEnum):
    """Which replica a container gets; the values are those of ``sharedDevicesAllocationPolicy``."""

    DISTRIBUTED = "distributed"
    PACKED = "packed"


class TimeSlice(StrEnum):
    """The driver's time slice; ``nvidia-smi compute-policy`` has a number for each."""

    DEFAULT = "default"
    SHORT = "short"
    MEDIUM = "medium"
    LONG = "long"


@dataclass(frozen=True, slots=True)
class Replicas:
    """One entry of ``sharing.timeSlicing.resources`` or ``sharing.mps.resources``.

    Attributes:
        resource: what is replicated, without the domain.
        advertised: what the replicas are called, without the domain.
        devices: None for all of the resource; a number for the first so many; or names: an index,
            ``<index>:<MIG index>`` or a UUID.
        refuses_more_than_one: a container may have one replica and no more.
    """

    kind: ReplicaKind
    resource: str
    advertised: str
    replicas: int
    devices: int | tuple[str, ...] | None
    refuses_more_than_one: bool
    path: str


@dataclass(frozen=True, slots=True)
class WholeDevices:
    """What the config says of devices that are given whole or as replicas.

    Attributes:
        time_slice: of GPUs with time-slicing replicas; None leaves the driver's as it is.
    """

    mig_strategy: MigStrategy = MigStrategy.NONE
    gpu_names: tuple[NamePattern, ...] = ()
    mig_names: tuple[NamePattern, ...] = ()
    replicas: tuple[Replicas, ...] = ()
    spread: Spread = Spread.DISTRIBUTED
    time_slice: TimeSlice | None = None


#: What a file means that says nothing of them.
GIVEN_WHOLE = WholeDevices()
