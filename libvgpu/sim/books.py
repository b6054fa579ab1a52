"""What a simulated machine says of itself: its devices and what happened on them."""

from dataclasses import dataclass

from .profiles import Profile


@dataclass(frozen=True, slots=True)
class SimDevice:
    """One GPU of a simulated machine, or one MIG instance of it.

    Attributes:
        index: on the machine, instances behind all GPUs.
        uuid: as NVML gives it.
        profile: its model.
        gpu: of an instance: the index of its GPU.
        instance: of an instance: the id of its GPU instance.
    """

    index: int
    uuid: str
    profile: Profile
    gpu: int | None = None
    instance: int | None = None


@dataclass(frozen=True, slots=True)
class ClientBooks:
    """What one process had of one GPU.

    Attributes:
        pid: as the process sees itself.
        memory_bytes: what it holds now.
        busy_ns: device time it really had; an MPS client's at its part of the device.
        launches: kernels completed.
        mps: whether it is a client of MPS.
        percentage: of the device that it may use at once; 0 without MPS.
        alive: False for a process that ended, shown until its place is needed.
        uid: its user.
        failed: its MPS server ended under it.
    """

    pid: int
    memory_bytes: int
    busy_ns: int
    launches: int
    mps: bool
    percentage: int
    alive: bool
    uid: int
    failed: bool


@dataclass(frozen=True, slots=True)
class DeviceBooks:
    """What happened on one GPU until ``clock_ns`` (CLOCK_MONOTONIC).

    Attributes:
        uuid: of the GPU.
        memory_used_bytes: held by all processes.
        memory_peak_bytes: the most that was ever held at once.
        backed_bytes: host memory behind what was written on this GPU.
        busy_ns: time during which any work ran.
        clock_ns: up to when this is true.
        clients: the processes.
    """

    uuid: str
    memory_used_bytes: int
    memory_peak_bytes: int
    backed_bytes: int
    busy_ns: int
    clock_ns: int
    clients: tuple[ClientBooks, ...]
