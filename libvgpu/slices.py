"""The slices of a run directory as they are found, for everybody who shows them.

Reads the files of each allocation and nothing else; no lock is taken and nothing is changed, so
looking never disturbs a container. What tenants write is hostile: `region` bounds it, and an
allocation whose files are damaged becomes a slice that says so instead of an error.
"""

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

from . import allocation_dirs, ownership, region
from .errors import AllocationRefused, RegionBusyError, VgpuError
from .limits import ContainerLimits
from .sharing_mode import Mode

RUNNING, IDLE, ABANDONED, DAMAGED = "running", "idle", "abandoned", "damaged"
BUSY = "busy"


@dataclass(frozen=True, slots=True)
class Slice:
    """One allocation as found.

    Attributes:
        meta: who it belongs to.
        limits: None where the file cannot be read.
        usage: None where either file cannot be read.
        state: ``running``, ``idle`` (no process), ``abandoned`` (its `vgpuctl run` is dead),
            ``damaged``, or ``busy`` (its container keeps a file from being read by a lease).
        problem: what is damaged or busy, a sentence; empty otherwise.
        modes: how each of its GPUs is shared now.
    """

    meta: allocation_dirs.AllocationMeta
    limits: ContainerLimits | None
    usage: region.ContainerUsage | None
    state: str
    problem: str = ""
    modes: tuple[Mode, ...] = ()


def readable_allocations(run_dir: Path) -> list[allocation_dirs.AllocationDir]:
    """Returns the allocations of a run directory, oldest first; none where it does not exist.

    Raises:
        AllocationRefused: the directory belongs to somebody else.
    """
    with contextlib.suppress(FileNotFoundError):
        try:
            os.listdir(run_dir / "allocations")
        except PermissionError:
            raise AllocationRefused(
                f"{run_dir} may not be read by this user",
                hint="look as the user who made the slices, or choose another with --run-dir",
            ) from None
    return allocation_dirs.list_allocations(run_dir)


def read_slices(run_dir: Path) -> tuple[Slice, ...]:
    """Returns the slices of a run directory, oldest first; none where it does not exist.

    Raises:
        AllocationRefused: the directory belongs to somebody else.
    """
    return tuple(
        read
        for allocation in readable_allocations(run_dir)
        if (read := _read_slice(run_dir, allocation)) is not None
    )


def _read_slice(run_dir: Path, allocation: allocation_dirs.AllocationDir) -> Slice | None:
    limits = None
    modes: tuple[Mode, ...] = ()
    try:
        view = region.read_limits(allocation.directory)
        limits, modes = view.limits, view.modes
        usage = region.read_usage(allocation.directory)
    except VgpuError as error:
        if not allocation.directory.exists():
            return None  # it ended while we looked
        state = BUSY if isinstance(error, RegionBusyError) else DAMAGED
        return Slice(allocation.meta, limits, None, state, error.message, modes)
    state = RUNNING if any(p.alive for p in usage.processes) else IDLE
    if allocation.meta.source == ownership.SOURCE and ownership.is_abandoned(
        run_dir, allocation.meta.allocation_id
    ):
        state = ABANDONED
    return Slice(allocation.meta, limits, usage, state, modes=modes)
