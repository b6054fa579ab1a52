"""What ``-o json`` of the verbs that list has in each object.

A key that is there is always there; what is not known is null. Sizes are bytes, durations and
moments seconds, moments since 1970.
"""

from typing import Annotated, Any, Literal, TypedDict

from msgspec import Meta

from libvgpu.limits import ComputeWord

Size = Annotated[int, Meta(ge=0, description="Bytes.")]
Count = Annotated[int, Meta(ge=0)]
Seconds = Annotated[float, Meta(ge=0, description="Seconds.")]
Moment = Annotated[float, Meta(ge=0, description="Seconds since 1970.")]
Percent = Annotated[int, Meta(ge=0, description="Of one GPU.")]
Version = Annotated[Literal[1], Meta(description="Of this form; keys may come, none changes.")]

FamilyName = Literal["vgpu", "mps"]
Source = Literal["kubelet", "run"]
State = Literal["running", "idle", "abandoned", "damaged", "busy"]
ConcurrencyName = Literal["time-slices", "mps"]
PendingName = Literal["core", "memory"]
GpuSource = Literal["driver", "simulated", "limits"]
ModeName = Annotated[
    Literal["none", "free", "shared", "windows"],
    Meta(description="none: no arbiter; free: one user; shared: enough for all; windows: turns."),
]


class LastRefusal(TypedDict):
    """An allocation that was refused."""

    asked_bytes: Size
    used_bytes: Size
    limit_bytes: Size
    kind: str
    at: Moment


class Refusals(TypedDict):
    """What was refused."""

    refused_count: Count | None
    last_refusal: LastRefusal | None


class PsSlice(TypedDict):
    """The slice, the process, and their memory."""

    version: Version
    allocation: str
    source: Source
    namespace: Annotated[str, Meta(description="Of the pod; empty until it is known.")]
    pod: str
    container: str
    name: Annotated[str, Meta(description="Of a vgpuctl run; empty without one.")]
    command: Annotated[list[str], Meta(description="Of a vgpuctl run.")]
    created_at: Moment
    family: FamilyName
    state: State
    problem: Annotated[str, Meta(description="What is damaged or busy; empty if nothing is.")]
    gpu_uuid: str | None
    pid: Annotated[int, Meta(ge=0, description="As the container counts.")] | None
    process: Annotated[str, Meta(description="Its name.")] | None
    shared_memory: (
        Annotated[bool, Meta(description="No process: memory that several of them hold.")] | None
    )
    ended: (
        Annotated[bool, Meta(description="The process has; its forked children keep its memory.")]
        | None
    )
    memory_used_bytes: Size | None
    memory_peak_bytes: Size | None
    container_memory_used_bytes: Size | None
    memory_limit_bytes: Size | None
    memory_unaccounted_bytes: Size | None
    core_percent: Percent | None
    compute: ComputeWord | None
    mode: ModeName | None
    concurrency: ConcurrencyName | None
    pending: Annotated[
        list[PendingName],
        Meta(description="Limits that hold when the process starts again."),
    ]


class PsCompute(TypedDict):
    """What is known of compute."""

    launches: Count | None
    gpu_time_seconds: Seconds | None
    share_percent: Percent | None
    estimated: (
        Annotated[bool, Meta(description="Launches, GPU time and share come from samples.")] | None
    )
    held_seconds: Seconds | None
    delay_p99_seconds: Seconds | None
    windows: Count | None


class PsRow(PsSlice, PsCompute, Refusals):
    """One process and GPU, or a GPU of a slice that no process uses."""


class StatusRow(TypedDict):
    """One GPU or MIG device."""

    version: Version
    index: Count | None
    mig_device: Count | None
    uuid: str
    product: str
    source: Annotated[
        GpuSource,
        Meta(description="Who told of it; limits: only a slice names it."),
    ]
    family: Annotated[str, Meta(description="Of its slices, joined by +; empty without any.")]
    concurrency: str
    memory_total_bytes: Size | None
    memory_allocated_bytes: Size
    memory_used_bytes: Size
    memory_unaccounted_bytes: Size
    memory_free_bytes: Size | None
    core_allocated_percent: Percent
    core_free_percent: Percent
    modes: list[ModeName]
    containers: Count
    health: Annotated[str, Meta(description="Empty: well; else why not.")] | None
    drains: Annotated[str, Meta(description="What the GPU waits for; empty: nothing.")] | None


LimitName = Literal["memory_bytes", "core_percent", "compute"]


class SetRow(TypedDict):
    """One value of one GPU of the slice."""

    version: Version
    allocation: str
    owner: Annotated[str, Meta(description="NAMESPACE/POD/CONTAINER; empty of a vgpuctl run.")]
    gpu_uuid: str
    value: LimitName
    old: int | str | None
    new: int | str | None
    changed: bool
    pending: Annotated[bool, Meta(description="It holds in processes that start later.")]


class EventRow(TypedDict):
    """One event that the agent told; with --follow one object a line."""

    version: Version
    at: Moment
    reason: str
    is_warning: bool
    subject: Annotated[str, Meta(description="NAMESPACE/POD/CONTAINER; empty for the node.")]
    text: str
    left_out: Annotated[int, Meta(ge=0, description="Equal ones before it that are not shown.")]


class MetricRow(TypedDict):
    """One sample of the agent's metrics."""

    version: Version
    name: str
    labels: dict[str, str]
    value: float
    type: str
    help: str


class DoctorRow(TypedDict):
    """What one check of the node found."""

    version: Version
    check: Annotated[str, Meta(description="Its short name; others may come.")]
    level: Annotated[
        Literal["ok", "warn", "fail"],
        Meta(description="warn: it works, or this user may not see it."),
    ]
    message: Annotated[str, Meta(description="What was found, with the values.")]
    fix: Annotated[str, Meta(description="What to do about it; empty where all is well.")]


class ConfigShowRow(TypedDict):
    """One value of a config."""

    version: Version
    key: Annotated[str, Meta(description="Where it stands: sharing.fractional[0].family.")]
    value: Annotated[Any, Meta(description="As JSON has it.")]
    origin: Annotated[
        str, Meta(description="A line of the file, an option or variable of the agent, or default.")
    ]
