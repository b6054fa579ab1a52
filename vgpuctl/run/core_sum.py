"""Whether one more slice fits: the shares promised on a GPU never sum to more than the whole.

Counted are the slices of one run directory that hold a share (family vgpu, compute not off;
`elastic` ones too, since theirs is promised as well; not those that have what others leave over).
Asking and making are one step: `admitting`
locks the run directory itself, a lock that goes with the process and leaves no file.
"""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from libvgpu import allocation_dirs, region
from libvgpu.counting import counted
from libvgpu.errors import AllocationRefused, RegionError, RegionUnknownError
from libvgpu.limits import WHOLE_CORE_PERCENT, ComputeMode, DeviceLimit, Family

from .directory_lock import locked

_PATIENCE_S = 5.0


@contextlib.contextmanager
def admitting(run_dir: Path) -> Iterator[None]:
    """Keeps every other run of this run directory from making its slice meanwhile.

    Raises:
        AllocationRefused: another one has been at it for seconds, so it is stopped or stuck.
    """
    run_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    with locked(run_dir, _PATIENCE_S, "making its slice"):
        yield


def promised_percent(device: DeviceLimit) -> int:
    """Returns the compute that a slice is promised on one GPU; 0 where it holds no share."""
    return 0 if device.compute_mode is ComputeMode.OFF else device.reserved_percent


def require_free_share(run_dir: Path, asked: Sequence[DeviceLimit], apart_from: str = "") -> None:
    """Checks, within `admitting`, that the GPUs have the compute left that is asked of them.

    Args:
        asked: what one slice is to have.
        apart_from: its allocation id, where it is there already and only changes.

    Raises:
        AllocationRefused: naming the GPU, what was asked, what is taken and what is allowed.
    """
    shares = _shares(run_dir, apart_from)
    for device in asked:
        percents = shares.get(device.uuid, [])
        taken = sum(percents)
        free = WHOLE_CORE_PERCENT - taken
        asked_percent = promised_percent(device)
        if not asked_percent or asked_percent <= free:
            continue
        allowed = f"at most {free} % are allowed" if free > 0 else "none is left"
        raise AllocationRefused(
            f"core {asked_percent} of GPU {device.uuid} cannot be given: "
            f"{counted(len(percents), 'slice')} of {run_dir} have {taken} % of it, so {allowed}",
            hint=(f"ask for --core {free} or less, " if free > 0 else "wait until one ends, ")
            + "or give --memory without --core, to have what others leave over; "
            "vgpuctl ps shows the slices",
        )


def _shares(run_dir: Path, apart_from: str) -> dict[str, list[int]]:
    """Returns the promised percentages by GPU."""
    found: dict[str, list[int]] = {}
    for allocation in allocation_dirs.list_allocations(run_dir):
        if allocation.meta.allocation_id == apart_from:
            continue
        try:
            limits = region.read_limits(allocation.directory).limits
        except RegionUnknownError:
            raise
        except RegionError:
            continue  # it ended meanwhile, or grants nothing as it is
        if limits.family is not Family.VGPU:
            continue
        for device in limits.devices:
            if percent := promised_percent(device):
                found.setdefault(device.uuid, []).append(percent)
    return found
