"""What memory a program really takes of the GPU under a slice of 4 GiB, and what it is refused.

The GPU is looked at by its own word, never the shim's: once when the program has its context, and
once when it holds what it could get.
"""

import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from libvgpu.limits import ContainerLimits, DeviceLimit, Family

from ..clients import read_line
from ..figure import Measurement
from ..gpu import Gpu
from ..nulldriver import built_client
from ..slices import create
from .holding import in_slice

_GIB, _MIB = 1 << 30, 1 << 20
_SLICE_BYTES = 4 * _GIB
_SECONDS = 60.0
#: Each has its local memory, of which a context brings so much.
_RESIDENT_THREADS, _OF_CONTEXT_BYTES = 2048 * 132, 1024
_BLOCK_BYTES = 2 * _MIB


@dataclass(frozen=True, slots=True)
class Row:
    """One program, and what was seen of it on silicon.

    Attributes:
        name: as it is shown.
        arguments: of ``native/memory_client.c``.
        quantity: ``taken``: GiB of the GPU in all; ``grown``: MiB since it had its context;
            ``done``: 1 where it got what it wanted, 0 where it was refused or died.
        aim: its value there; of what is held, with the shim of that day, which is history.
        tolerance: how far off it may be.
        is_held: under a slice of 4 GiB and half of the GPU's time, or bare.
        most: what may be held.
        least: what must be held.
        is_simulated: no real GPU has shown it yet.
    """

    name: str
    arguments: tuple[str, ...]
    quantity: str
    aim: float
    tolerance: float = 0.0
    is_held: bool = True
    most: float | None = None
    least: float | None = None
    is_simulated: bool = False


def _pieces(bytes_: int, silicon_gib: float) -> Row:
    name = f"4 GiB slice, pieces of {bytes_} bytes"
    return Row(name, ("pieces", str(bytes_)), "taken", silicon_gib, most=4.0)


def _local(bytes_: int) -> Row:
    name = f"one launch, {bytes_} bytes of local memory a thread, bare"
    grown = max(0, bytes_ - _OF_CONTEXT_BYTES) * _RESIDENT_THREADS
    mib = -(-grown // _BLOCK_BYTES) * _BLOCK_BYTES / _MIB
    return Row(name, ("local", str(bytes_)), "grown", mib, is_held=False, is_simulated=True)


ROWS = (
    _pieces(1_048_577, 7.5),
    _pieces(2_097_153, 7.5),
    _pieces(3_000_001, 5.4),
    _pieces(600_000, 4.6),
    Row(
        "4 GiB slice, pieces of 64 MiB",
        ("pieces", str(64 * _MIB)),
        "taken",
        3.94,
        least=3.93,
        most=4.0,
    ),
    Row(
        "one launch, 128 KiB of local memory a thread, bare",
        ("local", str(128 << 10)),
        "grown",
        33_529,
        1,
        is_held=False,
    ),
    Row(
        "one launch, 128 KiB of local memory a thread, 4 GiB slice",
        ("local", str(128 << 10)),
        "grown",
        33_529,
        most=2,
    ),
    Row("graph of 100 x 64 MiB and its end, bare", ("graph",), "grown", 64, 2, is_held=False),
    Row("graph of 100 x 64 MiB and its end, 4 GiB slice", ("graph",), "done", 0, least=1),
    Row("a stream destroyed busy, bare", ("destroyed",), "done", 1, 0, is_held=False),
    # It died there with the shim of 2026-11-22.
    Row("a stream destroyed busy, under a cap", ("destroyed",), "done", 0, least=1),
    *(_local(bytes_) for bytes_ in (1008, 1040, 1536, 2048, 4096)),
)
_UNITS = {"taken": "GiB", "grown": "MiB", "done": "1 or 0"}


def measure(gpu: Gpu) -> list[Measurement]:
    """Measures every row.

    Args:
        gpu: where, with nobody else on it.

    Raises:
        VgpuError: there is no compiler, or it fails.
    """
    with built_client(gpu.driver, "memory_client") as program:
        return [_measure(row, gpu, program) for row in ROWS]


def _measure(row: Row, gpu: Gpu, program: Path) -> Measurement:
    with tempfile.TemporaryDirectory(dir=program.parent) as name:
        environment = gpu.environment({"PATH": "/usr/bin:/bin"})
        if row.is_held:
            limit = DeviceLimit(gpu.uuid, _SLICE_BYTES, core_percent=50, weight=50)
            create(Path(name, "slice"), ContainerLimits("bench", Family.VGPU, (limit,)))
            environment |= in_slice(Path(name, "slice"))
        found = _hold([str(program), *row.arguments], environment, gpu)
    case, unit = row.name, _UNITS[row.quantity]
    if found is None and row.quantity != "done":
        return Measurement(case, gpu.title, row.quantity, unit, None, note="it ended by itself")
    value = float(found is not None and found.is_done)
    if found is not None and row.quantity != "done":
        taken = row.quantity == "taken"
        value = found.taken_bytes / _GIB if taken else found.grown_bytes / _MIB
    told = Measurement(case, gpu.title, row.quantity, unit, round(value, 2))
    if row.is_held:
        return replace(told, history=row.aim, most=row.most, least=row.least)
    if row.is_simulated:
        return replace(told, simulated=round(row.aim, 2), tolerance=row.tolerance)
    return replace(told, silicon=row.aim, tolerance=row.tolerance)


@dataclass(frozen=True, slots=True)
class _Held:
    taken_bytes: int
    grown_bytes: int
    is_done: bool


def _hold(command: Sequence[str], environment: dict[str, str], gpu: Gpu) -> _Held | None:
    """Returns what the program holds once it has what it could get; None: it died."""
    before_bytes = gpu.used_bytes()
    process = subprocess.Popen(
        command,
        env=environment,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert process.stdin is not None
        if read_line(process, _SECONDS) != "context\n":
            return None
        begun_bytes = gpu.used_bytes()
        process.stdin.write("go\n")
        process.stdin.flush()
        words = read_line(process, _SECONDS).split()
        if len(words) != 2:
            return None
        held_bytes = gpu.used_bytes()
        return _Held(held_bytes - before_bytes, held_bytes - begun_bytes, words[0] == "did")
    finally:
        process.kill()
        process.communicate()
