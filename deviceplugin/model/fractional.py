"""What the config says about GPUs and MIG devices that are shared in fractions."""

from dataclasses import dataclass
from enum import StrEnum

from libvgpu.limits import ComputeMode, Family

from .concurrency import Concurrency
from .device_match import ANY_DEVICE, DeviceMatch

#: The container's memory limit is handed to MPS in MiB, so a unit is whole MiB.
UNIT_STEP_BYTES = 1 << 20


class Placement(StrEnum):
    """Which of several GPUs with room a fraction is put on."""

    BINPACK = "binpack"
    SPREAD = "spread"


class LoneHalves(StrEnum):
    """Whether a container may ask for core or memory alone."""

    ALLOW = "allow"
    FORBID = "forbid"


@dataclass(frozen=True, slots=True)
class FractionalEntry:
    """One entry of ``sharing.fractional``.

    Attributes:
        devices: indexes or UUIDs; None means all.
        path: where it stands in the file, for messages.
        concurrency: of family vgpu; family mps has clients of MPS in any case.
        lone_halves: whether a container may ask for core or memory alone.
    """

    family: Family
    devices: tuple[int | str, ...] | None
    memory_unit_bytes: int
    compute: ComputeMode
    path: str
    placement: Placement = Placement.BINPACK
    concurrency: Concurrency = Concurrency.TIME_SLICES
    match: DeviceMatch = ANY_DEVICE
    lone_halves: LoneHalves = LoneHalves.ALLOW
