"""What calls of the driver cost the host, and events and launches the GPU, without any shim."""

import os
from collections.abc import Sequence
from dataclasses import dataclass

from libvgpu.errors import VgpuError

from ..clients import run
from ..figure import Measurement
from ..gpu import Gpu
from ..nulldriver import built_client

_SECONDS = 60
_MEASURED = "measured on an H100, 2026-11-23"
_FIRST_RUN = "first run on an H100, 2026-11-22"
_OFF_BY = 0.1
#: A look at the clock takes some 25 ns; neither the client nor the simulator is truer than that.
_OFF_BY_NS = 30


@dataclass(frozen=True, slots=True)
class CallRow:
    """One line of ``native/calls_client.c``.

    Attributes:
        name: as it is there.
        silicon_ns: what it took on silicon.
        source: of that.
        tolerance_ns: how far off it may be.
    """

    name: str
    silicon_ns: float
    source: str
    tolerance_ns: float


def _row(name: str, silicon_ns: float, source: str = _MEASURED) -> CallRow:
    return CallRow(name, silicon_ns, source, max(round(_OFF_BY * silicon_ns), _OFF_BY_NS))


#: Values of 2026-11-23 are those of results/driver-h100-2026-11-23.json.
CALL_ROWS = (
    _row("cuLaunchKernel, 100 behind a busy kernel", 3594),
    _row("cuLaunchKernelEx, 100 behind a busy kernel", 3414),
    _row("launch + cuStreamSynchronize", 8762),
    _row("cuGraphLaunch of 20 kernels, 20 in a row", 1534),
    _row("cuEventCreate + cuEventDestroy", 464),
    _row("cuEventRecord", 1058),
    _row("cuEventQuery, done", 1392),
    _row("cuEventSynchronize, done", 1426),
    _row("cuStreamWaitEvent", 184),
    _row("cuStreamQuery", 258),
    _row("cuStreamSynchronize", 1487),
    _row("cuCtxSynchronize", 576),
    _row("cuStreamCreate + cuStreamDestroy", 4153),
    _row("cuMemGetInfo", 5294),
    _row("cuMemAlloc + cuMemFree of 4 KiB", 75_478),
    _row("cuMemAlloc + cuMemFree of 2 MiB", 73_762),
    _row("cuMemAlloc + cuMemFree of 64 MiB", 119_688),
    _row("cuMemAlloc + cuMemFree of 4 KiB of a block that stays", 3000, _FIRST_RUN),
    _row("cuMemAllocAsync + cuMemFreeAsync of 1 MiB", 1432),
    _row("cuMemsetD8Async of 1 KiB", 961),
    _row("cuMemcpyHtoDAsync of 4 KiB, pinned", 1639),
    _row("GPU time of an event after a queued 10 us kernel", 1842),
    _row("event pair around a lone 10 us kernel", 15_720),
)


def read_lines(text: str) -> dict[str, float]:
    """Returns what the client said: ns by name.

    Raises:
        VgpuError: a line is not one of it.
    """
    found = {}
    for line in text.splitlines():
        ns, _, name = line.partition(" ")
        try:
            found[name] = float(ns)
        except ValueError:
            raise VgpuError(f"calls_client said {line!r}, must be ns and a name") from None
    return found


def judged(rows: Sequence[CallRow], found: dict[str, float], subject: str) -> list[Measurement]:
    """Returns the measurements of rows, each with silicon's value as its bar."""
    return [
        Measurement(
            row.name,
            subject,
            "time",
            "ns",
            found.get(row.name),
            note=row.source if row.name in found else "the client did not tell it",
            silicon=row.silicon_ns,
            tolerance=row.tolerance_ns,
        )
        for row in rows
    ]


def measure_calls(
    gpu: Gpu, rounds_per_ms: int, rows: Sequence[CallRow] = CALL_ROWS
) -> list[Measurement]:
    """Measures rows.

    Args:
        gpu: where, with nobody else on it.
        rounds_per_ms: of its kernels, as `spin_rate` measures.
        rows: which ones.

    Raises:
        VgpuError: there is no compiler, or it or the client fails.
    """
    with built_client(gpu.driver, "calls_client") as program:
        environment = gpu.environment({"PATH": os.defpath})
        command = [str(program), f"rounds_per_ms={rounds_per_ms}"]
        return judged(rows, read_lines(run(command, environment, _SECONDS)), gpu.title)
