"""What ``-o json`` of `describe` has: an object for a container, or for a GPU.

Nulls are what is not known, without the agent above all.
"""

from typing import Annotated, Literal, TypedDict

from msgspec import Meta

from libvgpu.limits import ComputeWord

from .rows import (
    Count,
    FamilyName,
    GpuSource,
    ModeName,
    Moment,
    Percent,
    Refusals,
    Seconds,
    Size,
    Source,
    State,
    Version,
)

OfTime = Annotated[float, Meta(ge=0, description="Percent of the time.")]
Origin = Annotated[str, Meta(description="Where the value comes from.")]


class Event(TypedDict):
    """One of the last events of the container or GPU."""

    at: Moment
    reason: str
    is_warning: bool
    text: str


class Process(TypedDict):
    """A process that uses the GPU, or memory that several hold."""

    pid: Count
    command: str
    shared_memory: bool
    memory_used_bytes: Size
    memory_peak_bytes: Size
    memory_by_kind: dict[str, int]
    gpu_time_seconds: Seconds
    held_seconds: Seconds
    launches: Count
    refused_count: Count


class DeviceLimits(TypedDict):
    """What was asked for, and what is in force."""

    gpu_uuid: str
    gpu: str | None
    product: str | None
    asked_core_percent: Percent | None
    asked_memory_bytes: Size | None
    core_percent: Percent
    core_from: Origin | None
    memory_limit_bytes: Size
    memory_from: Origin | None
    physical_bytes: Size
    compute: ComputeWord
    compute_from: Origin | None
    mps_pipe_directory: str


class DeviceMemory(TypedDict):
    """What is held."""

    memory_used_bytes: Size | None
    memory_peak_bytes: Size | None
    memory_by_kind: dict[str, int]
    memory_unaccounted_bytes: Size


class DeviceCompute(TypedDict):
    """How much of the GPU's time it gets."""

    mode: ModeName | None
    share_percent: OfTime | None
    share_is_estimated: bool | None
    held_percent: OfTime
    held_percent_since_start: OfTime | None
    delay_p99_seconds: Seconds | None
    gpu_time_seconds: Seconds | None
    launches: Count | None
    windows: Count | None
    verdict: Annotated[str, Meta(description="Whether its cap binds, a sentence.")]


class ContainerDevice(DeviceLimits, DeviceMemory, DeviceCompute, Refusals):
    """A container's slice of one GPU."""

    processes: list[Process]


class Container(TypedDict):
    """A container's slice, or that of a vgpuctl run."""

    version: Version
    kind: Literal["container"]
    allocation: str
    source: Source
    owner: Annotated[str, Meta(description="NAMESPACE/POD/CONTAINER; empty until it is known.")]
    name: Annotated[str, Meta(description="Of a vgpuctl run; empty without one.")]
    command: list[str]
    family: FamilyName
    state: State
    problem: str
    created_at: Moment
    directory: str
    shim_build: str | None
    has_agent: bool
    devices: list[ContainerDevice]
    events: list[Event]


class Health(TypedDict):
    """Why nothing is given of a GPU, or not all; empty: no reason, null: not known."""

    unhealthy: str | None
    draining: str | None
    withheld: str | None


class SliceOfGpu(TypedDict):
    """Who has a part of the GPU."""

    allocation: str
    who: str
    state: State
    memory_used_bytes: Size
    memory_limit_bytes: Size
    core_percent: Percent
    share_percent: OfTime | None
    held_percent: OfTime


class WholeDevice(TypedDict):
    """Who has the GPU whole, or a replica of it."""

    resource: str
    id: str
    owner: str


class Gpu(TypedDict):
    """A GPU or MIG device."""

    version: Version
    kind: Literal["gpu"]
    gpu_uuid: str
    gpu: str | None
    product: str
    source: GpuSource
    driver: str
    family: str
    health: Health
    memory_total_bytes: Size | None
    memory_allocated_bytes: Size
    memory_used_bytes: Size
    memory_unaccounted_bytes: Size
    memory_free_bytes: Size | None
    core_allocated_percent: Percent
    core_free_percent: Percent
    share_percent: OfTime
    slices: list[SliceOfGpu]
    devices: list[WholeDevice]
    events: list[Event]
