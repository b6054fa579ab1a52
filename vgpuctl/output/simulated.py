"""What ``-o json`` of `sim list` has in each object. All figures are simulated."""

from typing import Annotated, TypedDict

from msgspec import Meta

from .rows import Count, Size, Version


class CallFaults(TypedDict):
    """What is injected into all driver calls of a simulated machine."""

    delay_ns: Count
    code: Annotated[int, Meta(description="The CUresult that calls answer.")]
    code_count: Annotated[int, Meta(ge=0, description="So many calls still do.")]


class NvmlFault(TypedDict):
    """What NVML answers for one simulated GPU instead of what is so."""

    function: Annotated[str, Meta(description="What their names begin with; *: every one.")]
    answer: Annotated[int, Meta(description="NVML's error; -1: calls do not return.")]


class DeviceFaults(TypedDict):
    """What is injected into one simulated GPU."""

    lost: bool
    broken_code: Annotated[int, Meta(description="Of its contexts; 0: none is broken.")]
    broken_ns: Annotated[int, Meta(description="On CLOCK_MONOTONIC; those begun until then.")]
    failing_allocations: Count
    nvml: list[NvmlFault]


class SimulatedGpu(TypedDict):
    """One GPU of a simulated machine."""

    index: Count
    uuid: str
    profile: str
    mig: Annotated[str, Meta(description="Into what it is cut, as in a SPEC.")] | None
    calibration: str
    product: str
    memory_total_bytes: Size
    memory_used_bytes: Size
    clients: Annotated[int, Meta(ge=0, description="Processes, those on MIG devices too.")]
    faults: DeviceFaults
    ecc_corrected: Count
    ecc_uncorrected: Count


class SimListRow(TypedDict):
    """One simulated machine of the user."""

    version: Version
    name: Annotated[str, Meta(description="Null of an unnamed one.")] | None
    directory: str
    cuda_version: str
    call_faults: CallFaults
    gpus: list[SimulatedGpu]
