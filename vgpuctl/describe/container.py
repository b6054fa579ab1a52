"""The facts of one container's slice, as a mapping.

From its files, and from the agent what they do not say: what was asked for and where each limit
comes from. Without an agent these are null.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from deviceplugin.pages.events import KeptEvent
from deviceplugin.pages.state import AgentReport, ReportedAllocation, ReportedGpu
from libvgpu.allocation_dirs import allocation_directory
from libvgpu.limits import DeviceLimit, Family
from libvgpu.region import ContainerUsage, DeviceUsage, ProcessUsage
from libvgpu.sharing_mode import Mode
from libvgpu.slices import Slice

from ..observe import container_usage, enforced_core_percent, refusals
from ..output.facts import (
    Container,
    ContainerDevice,
    DeviceCompute,
    DeviceMemory,
    Event,
    Process,
)
from ..output.rows import FamilyName, Source, State
from ..render import OUTPUT_VERSION, seconds
from ..top.frame import TopGpu
from ..top.rates import TopRow
from .verdict import Throttle, verdict

_EVENTS = 5


def describe_container(
    found: Slice,
    run_dir: Path,
    rows: Mapping[str, TopRow],
    gpus: Mapping[str, TopGpu],
    report: AgentReport | None,
    events: Sequence[KeptEvent],
    now: float,
) -> Container:
    """Returns the facts.

    Args:
        rows: what happened between two looks, by UUID of the GPU.
        gpus: of the node, by UUID.
        events: all that are kept.
        now: seconds since the epoch.
    """
    meta = found.meta
    told = _told(report, meta.allocation_id)
    owner = f"{meta.namespace}/{meta.pod}/{meta.container}" if meta.pod else ""
    mine = [each for each in events if owner and each.subject == owner][-_EVENTS:]
    return {
        "version": OUTPUT_VERSION,
        "kind": "container",
        "allocation": meta.allocation_id,
        "source": cast(Source, meta.source),
        "owner": owner,
        "name": meta.name,
        "command": list(meta.command),
        "family": cast(FamilyName, meta.family),
        "state": cast(State, found.state),
        "problem": found.problem,
        "created_at": meta.created_at,
        "directory": str(allocation_directory(run_dir, meta.allocation_id)),
        "shim_build": told.shim_build if told else None,
        "has_agent": report is not None,
        "devices": [
            _device(found, index, limit, rows.get(limit.uuid), gpus, told, now)
            for index, limit in enumerate(found.limits.devices if found.limits else ())
        ],
        "events": list(map(event_fact, mine)),
    }


def _told(report: AgentReport | None, allocation_id: str) -> ReportedAllocation | None:
    allocations = report.allocations if report else []
    return next((each for each in allocations if each.allocation == allocation_id), None)


def _device(
    found: Slice,
    index: int,
    limit: DeviceLimit,
    row: TopRow | None,
    gpus: Mapping[str, TopGpu],
    told: ReportedAllocation | None,
    now: float,
) -> ContainerDevice:
    assert found.limits is not None
    family = found.limits.family
    gpu = gpus.get(limit.uuid)
    given = _given(told, limit.uuid)
    usage = container_usage(found.usage, index) if found.usage else None
    core_percent = enforced_core_percent(family, limit)
    mode = None if family is Family.MPS else found.modes[index]
    return {
        "gpu_uuid": limit.uuid,
        "gpu": gpu.name if gpu else None,
        "product": gpu.product if gpu else None,
        "asked_core_percent": given.asked_core_percent if given else None,
        "asked_memory_bytes": given.asked_memory_bytes if given else None,
        "core_percent": core_percent,
        "core_from": given.core if given else None,
        "memory_limit_bytes": limit.memory_limit_bytes,
        "memory_from": given.memory if given else None,
        "physical_bytes": limit.physical_bytes,
        "compute": limit.compute_mode.word,
        "compute_from": given.compute if given else None,
        "mps_pipe_directory": limit.mps_pipe_directory,
        **_memory(usage, limit),
        **_compute(family, limit, core_percent, row, usage, mode, now - found.meta.created_at),
        **refusals(usage),
        "processes": _processes(found.usage, index),
    }


def _given(told: ReportedAllocation | None, uuid: str) -> ReportedGpu | None:
    return next((each for each in told.devices if each.gpu == uuid), None) if told else None


def _memory(usage: DeviceUsage | None, limit: DeviceLimit) -> DeviceMemory:
    return {
        "memory_used_bytes": usage.used_bytes if usage else None,
        "memory_peak_bytes": usage.peak_bytes if usage else None,
        "memory_by_kind": {k: v for k, v in usage.kind_bytes.items() if v} if usage else {},
        "memory_unaccounted_bytes": limit.unaccounted_bytes,
    }


def _compute(
    family: Family,
    limit: DeviceLimit,
    core_percent: int,
    row: TopRow | None,
    usage: DeviceUsage | None,
    mode: Mode | None,
    age_s: float,
) -> DeviceCompute:
    share = row.share_percent if row else None
    held = row.held_percent if row else 0.0
    since_start = usage.held_ns / 1e7 / age_s if usage and age_s > 0 else None
    throttle = Throttle(family, limit.compute_mode, core_percent, share, held, mode)
    p99_ns = usage.delay_p99_ns if usage else None
    return {
        "mode": mode.value if mode else None,
        "share_percent": None if share is None else round(share, 1),
        "share_is_estimated": row.is_estimated if row else None,
        "held_percent": round(min(100.0, held), 1),
        "held_percent_since_start": None
        if since_start is None
        else round(min(100.0, since_start), 1),
        "delay_p99_seconds": None if p99_ns is None else seconds(p99_ns),
        "gpu_time_seconds": seconds(usage.gpu_time_ns) if usage else None,
        "launches": usage.launches if usage else None,
        "windows": usage.windows if usage else None,
        "verdict": verdict(throttle),
    }


def _processes(usage: ContainerUsage | None, index: int) -> list[Process]:
    found = []
    for process in usage.processes if usage else ():
        own = next((d for d in process.devices if d.device_index == index), None)
        if process.alive and own is not None:
            found.append(_process(process, own))
    return found


def _process(process: ProcessUsage, own: DeviceUsage) -> Process:
    return {
        "pid": process.pid,
        "command": process.command,
        "shared_memory": process.shared,
        "memory_used_bytes": own.used_bytes,
        "memory_peak_bytes": own.peak_bytes,
        "memory_by_kind": {kind: size for kind, size in own.kind_bytes.items() if size},
        "gpu_time_seconds": seconds(own.gpu_time_ns),
        "held_seconds": seconds(own.held_ns),
        "launches": own.launches,
        "refused_count": own.refused_count,
    }


def event_fact(event: KeptEvent) -> Event:
    """Returns one of the last events."""
    return {
        "at": event.at,
        "reason": event.reason,
        "is_warning": event.is_warning,
        "text": event.text,
    }
