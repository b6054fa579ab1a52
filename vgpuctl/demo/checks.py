"""The checks of one container: what it printed against what it asked for and the GPU's books.

Nothing here waits or starts anything. What is expected follows from the manifest, the profile of
the GPU and the client's own figure of free memory; the books are those of the simulated GPU, which
knows nothing of slices.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from libvgpu.limits import Family
from libvgpu.sim import ClientBooks, Machine

from .output import Report, size
from .tenant import Asked, DemoContainer

_CUDA_ERROR_OUT_OF_MEMORY = 2
_SHARE_TOLERANCE_POINTS = 3.0


def check_slice(
    report: Report, tenant: DemoContainer, asked: Asked, said: Mapping[str, Any], machine: Machine
) -> None:
    """Checks one round of the client's phases.

    Args:
        report: takes the results.
        tenant: the container.
        asked: the slice that must hold now.
        said: the round's lines by phase.
        machine: whose books are looked at.
    """
    view, memory, compute = said["view"], said["memory"], said["compute"]
    check, name, limit = report.check, tenant.name, asked.memory_bytes
    totals = {
        "cuMemGetInfo": view["cuda_total_bytes"],
        "cuDeviceTotalMem": view["device_total_bytes"],
        "NVML": view["nvml_total_bytes"],
    }
    check(f"{name}: total shown", _totals(dict.fromkeys(totals, limit)), _totals(totals))
    profile = next(d.profile for d in machine.devices if d.uuid == view["uuid"])
    context_bytes = profile.context_bytes
    books = _books(machine, view["uuid"], tenant.child.process.pid)
    booked = sum(client.memory_bytes for client in books)
    free, piece = memory["free_before_bytes"], memory["piece_bytes"]
    # Streams and code take some MiB, too, which are charged where NVML tells whose they are.
    besides = booked - memory["granted_bytes"] - context_bytes + profile.calibration.block_bytes
    most = limit - context_bytes
    check(
        f"{name}: free next to its context",
        f"{size(most)}, or up to {size(besides)} less",
        size(free),
        most - besides <= free <= most,
    )
    check(
        f"{name}: granted in pieces of {size(piece)}",
        _granted(free // piece, _CUDA_ERROR_OUT_OF_MEMORY, True),
        _granted(
            memory["granted_bytes"] // piece,
            memory["refusal_code"],
            memory["one_again_after_free"],
        ),
    )
    expected_bytes = context_bytes + memory["granted_bytes"]
    check(f"{name}: held by the GPU's own books", size(expected_bytes), size(booked))
    by_mps = any(client.mps for client in books)
    check(f"{name}: client of MPS by the GPU's own books", asked.family is Family.MPS, by_mps)
    share, core = compute["share_percent"], asked.core_percent
    check(
        f"{name}: compute share",
        f"{core} ± {_SHARE_TOLERANCE_POINTS:.0f} %",
        f"{share} %",
        abs(share - core) <= _SHARE_TOLERANCE_POINTS,
    )


def check_listed(report: Report, tenant: DemoContainer, rows: Iterable[Mapping[str, Any]]) -> None:
    """Checks what `vgpuctl ps -o json` lists of one container."""
    expected = _listed(
        tenant.child.process.pid, tenant.asked.memory_bytes, tenant.asked.core_percent
    )
    shown = [
        _listed(row["pid"], row["memory_limit_bytes"], row["core_percent"])
        for row in rows
        if f"{row['pod']}/{row['container']}" == tenant.name
    ]
    report.check(f"{tenant.name} in vgpuctl ps", expected, " and ".join(shown) or "nothing")


def _books(machine: Machine, uuid: str, pid: int) -> list[ClientBooks]:
    return [
        client
        for device in machine.books()
        if device.uuid == uuid
        for client in device.clients
        if client.pid == pid
    ]


def _totals(bytes_by: Mapping[str, int]) -> str:
    return ", ".join(f"{size(count)} by {who}" for who, count in bytes_by.items())


def _granted(pieces: int, refusal_code: int, again: bool) -> str:
    return f"{pieces}, then code {refusal_code}, {'one' if again else 'none'} again after a free"


def _listed(pid: int | None, limit_bytes: int, core_percent: int) -> str:
    return f"process {pid} with {size(limit_bytes)} and {core_percent} %"
