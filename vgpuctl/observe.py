"""What slices hold and use, as rows for `ps` and `status`. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from libvgpu import region
from libvgpu.limits import WHOLE_CORE_PERCENT, DeviceLimit, Family
from libvgpu.slices import Slice
from libvgpu.usage import is_measured

from .render import OUTPUT_VERSION, seconds
from .run.requests import GpuCandidate

if TYPE_CHECKING:  # `ps` needs no msgspec, which takes longer than all of it
    from deviceplugin.pages.state import AgentReport

    from .output.rows import (
        ConcurrencyName,
        FamilyName,
        GpuSource,
        ModeName,
        PendingName,
        PsCompute,
        PsRow,
        Refusals,
        Source,
        State,
        StatusRow,
    )

MIB = 1 << 20
#: How the share of a slice is shown that has no reserved compute, but what others leave over.
LEFT_OVER = "rest"


def enforced_core_percent(family: Family, limit: DeviceLimit) -> int:
    """Returns the core percentage that holds: that of MPS in its family, else the shim's.

    0: no compute is reserved, it has what others leave over.
    """
    if family is Family.MPS:
        return limit.mps_thread_percentage or limit.core_percent
    return limit.reserved_percent


def process_rows(slices: Sequence[Slice]) -> "list[PsRow]":
    """Returns one row per process and GPU it uses; one per GPU where no process uses it."""
    rows: list[PsRow] = []
    for found in slices:
        if found.limits is None or found.usage is None:
            rows.append(_row(found, None, None, None, None))
            continue
        for index, limit in enumerate(found.limits.devices):
            total = container_usage(found.usage, index)
            using = [
                (process, own)
                for process in found.usage.processes
                if process.alive
                and (own := _of_device(process.devices, index)) is not None
                and (_is_used(own) or (index == 0 and not any(map(_is_used, process.devices))))
            ]
            for process, own in using:
                rows.append(_row(found, limit, total, process, own))
            if not using:
                rows.append(_row(found, limit, total, None, total))
    return rows


def _of_device(devices: Sequence[region.DeviceUsage], index: int) -> region.DeviceUsage | None:
    return next((d for d in devices if d.device_index == index), None)


def container_usage(usage: region.ContainerUsage, index: int) -> region.DeviceUsage | None:
    """Returns a device's totals without the bytes of dead processes.

    Those are free already: the container's next allocation that needs them takes them back.
    """
    total = _of_device(usage.devices, index)
    if total is None:
        return None
    dead = [own for p in usage.processes if not p.alive and (own := _of_device(p.devices, index))]
    used = max(0, total.used_bytes - sum(own.used_bytes for own in dead))
    return replace(total, used_bytes=used)


def _is_used(usage: region.DeviceUsage) -> bool:
    return bool(usage.used_bytes or usage.launches or usage.refused_count or usage.peak_bytes)


def _pending(
    family: Family | None, limit: DeviceLimit | None, process: region.ProcessUsage | None
) -> "list[PendingName]":
    """Returns which limits of a client of MPS hold when it starts again: MPS fixes them at start.

    It tells of a process's first GPU; less memory than it started with holds at once.
    """
    if family is not Family.MPS or limit is None or process is None:
        return []
    began, pinned_mib = process.mps_thread_percentage, process.mps_pinned_mib
    core = began not in (0, limit.mps_thread_percentage)
    memory = 0 < pinned_mib < limit.mps_pinned_bytes // MIB
    pending: list[tuple[PendingName, bool]] = [("core", core), ("memory", memory)]
    return [name for name, is_pending in pending if is_pending]


def _compute_books(
    family: Family | None, limit: DeviceLimit | None, own: region.DeviceUsage | None
) -> "PsCompute":
    """Returns what is known of compute.

    Where no cap is held in time, launches, GPU time and share are estimates, and unknown while
    nothing was sampled.
    """
    measured = family is not None and limit is not None and is_measured(family, limit)
    known = own if own and (measured or own.gpu_time_ns) else None
    delay_ns = own.delay_p99_ns if own else None
    return {
        "launches": known.launches if known else None,
        "gpu_time_seconds": seconds(known.gpu_time_ns) if known else None,
        "share_percent": known.share_percent if known else None,
        "estimated": known.is_estimated or not measured if known else None,
        "held_seconds": seconds(own.held_ns) if own else None,
        "delay_p99_seconds": seconds(delay_ns) if delay_ns is not None else None,
        "windows": own.windows if own else None,
    }


def refusals(usage: region.DeviceUsage | None) -> "Refusals":
    """Returns what was refused of a device; nulls where that is not known."""
    last = usage.last_refusal if usage else None
    return {
        "refused_count": usage.refused_count if usage else None,
        "last_refusal": None
        if last is None
        else {
            "asked_bytes": last.asked_bytes,
            "used_bytes": last.used_bytes,
            "limit_bytes": last.limit_bytes,
            "kind": last.kind,
            "at": seconds(last.at_ns),
        },
    }


def _mode(found: Slice, limit: DeviceLimit | None) -> "ModeName | None":
    """Returns how a GPU of the slice is shared; nobody arbitrates between clients of MPS."""
    if found.limits is None or limit is None or found.limits.family is Family.MPS:
        return None
    return found.modes[found.limits.devices.index(limit)].value


def _concurrency(limit: DeviceLimit | None) -> "ConcurrencyName | None":
    """Returns how the slice runs next to others of its GPU."""
    if limit is None:
        return None
    return "mps" if limit.is_mps_client else "time-slices"


def _row(
    found: Slice,
    limit: DeviceLimit | None,
    total: region.DeviceUsage | None,
    process: region.ProcessUsage | None,
    own: region.DeviceUsage | None,
) -> "PsRow":
    meta = found.meta
    return {
        "version": OUTPUT_VERSION,
        "allocation": meta.allocation_id,
        "source": cast("Source", meta.source),
        "namespace": meta.namespace,
        "pod": meta.pod,
        "container": meta.container,
        "name": meta.name,
        "command": list(meta.command),
        "created_at": meta.created_at,
        "family": cast("FamilyName", meta.family),
        "state": cast("State", found.state),
        "problem": found.problem,
        "gpu_uuid": limit.uuid if limit else None,
        "pid": process.pid if process else None,
        "process": process.command if process else None,
        "shared_memory": process.shared if process else None,  # not a process: a piece of its
        "ended": process.ended if process else None,  # its children keep its memory
        "memory_used_bytes": own.used_bytes if own else None,
        "memory_peak_bytes": own.peak_bytes if own else None,
        "container_memory_used_bytes": total.used_bytes if total else None,
        "memory_limit_bytes": limit.memory_limit_bytes if limit else None,
        "memory_unaccounted_bytes": limit.unaccounted_bytes if limit else None,
        "core_percent": (
            enforced_core_percent(found.limits.family, limit) if limit and found.limits else None
        ),
        "compute": limit.compute_mode.word if limit else None,
        "mode": _mode(found, limit),
        "concurrency": _concurrency(limit),
        "pending": _pending(found.limits.family if found.limits else None, limit, process),
        **_compute_books(found.limits.family if found.limits else None, limit, own),
        **refusals(own),
    }


@dataclass(frozen=True, slots=True)
class SeenGpu:
    """One GPU and who told of it: ``driver``, ``simulated``, or ``limits`` (only its name)."""

    gpu: GpuCandidate
    source: "GpuSource"


@dataclass(frozen=True, slots=True)
class GpuState:
    """What an agent says of a GPU; None where none says it.

    Attributes:
        health: why nothing of it is given; empty where it is well.
        drains: what it waits for before it is shared as the config says; empty: for nothing.
    """

    health: str | None = None
    drains: str | None = None


def gpu_state(report: "AgentReport | None", uuid: str) -> GpuState:
    """Returns what an agent's report says of a GPU."""
    if report is None:
        return GpuState()
    reasons = (report.unhealthy_gpus, report.left_out_gpus, report.withheld_gpus)
    health = next((each[uuid] for each in reasons if uuid in each), "")
    return GpuState(health, report.draining_gpus.get(uuid, ""))


def gpu_rows(
    gpus: Sequence[SeenGpu],
    slices: Sequence[Slice],
    told: Callable[[str], GpuState] = lambda uuid: GpuState(),
) -> "list[StatusRow]":
    """Returns one row per GPU seen, then one per GPU that only a slice names.

    Args:
        told: what an agent says of a GPU, by its UUID.
    """
    known = {seen.gpu.uuid for seen in gpus}
    named = {d.uuid for s in slices if s.limits for d in s.limits.devices}
    only_named = [
        SeenGpu(GpuCandidate(-1, uuid, "", 0), "limits") for uuid in sorted(named - known)
    ]
    return [_gpu_row(seen, slices, told(seen.gpu.uuid)) for seen in (*gpus, *only_named)]


def _gpu_row(seen: SeenGpu, slices: Sequence[Slice], told: GpuState) -> "StatusRow":
    uuid = seen.gpu.uuid
    families: set[str] = set()
    concurrencies: set[str] = set()
    modes: set[ModeName | None] = set()
    allocated_bytes = used_bytes = unaccounted_bytes = core_percent = containers = 0
    for found in slices:
        for index, limit in enumerate(found.limits.devices if found.limits else ()):
            if limit.uuid != uuid or found.limits is None:
                continue
            containers += 1
            families.add(found.meta.family)
            concurrencies.add(str(_concurrency(limit)))
            modes.add(_mode(found, limit))
            allocated_bytes += limit.memory_limit_bytes
            unaccounted_bytes += limit.unaccounted_bytes
            core_percent += enforced_core_percent(found.limits.family, limit)
            usage = container_usage(found.usage, index) if found.usage else None
            used_bytes += usage.used_bytes if usage else 0
    return {
        "version": OUTPUT_VERSION,
        "index": seen.gpu.index if seen.gpu.index >= 0 else None,
        "mig_device": seen.gpu.mig_number,
        "uuid": uuid,
        "product": seen.gpu.product,
        "source": seen.source,
        "family": "+".join(sorted(families)),
        "concurrency": "+".join(sorted(concurrencies)),
        "memory_total_bytes": seen.gpu.memory_bytes or None,
        "memory_allocated_bytes": allocated_bytes,
        "memory_used_bytes": used_bytes,
        "memory_unaccounted_bytes": unaccounted_bytes,
        "memory_free_bytes": (
            max(0, seen.gpu.memory_bytes - allocated_bytes) if seen.gpu.memory_bytes else None
        ),
        "core_allocated_percent": core_percent,
        "core_free_percent": max(0, WHOLE_CORE_PERCENT - core_percent),
        "modes": sorted(mode for mode in modes if mode is not None),
        "containers": containers,
        "health": told.health,
        "drains": told.drains,
    }
