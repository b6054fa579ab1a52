"""Whether one more slice fits: the memory promised on a GPU never sums to more than the GPU has.

Counted are the slices of one run directory, of `vgpuctl run` and of the node agent alike, with what
is to be backed by memory (their limit ÷ overcommit); not those of a killed `vgpuctl run`, whose
memory the driver has back. Asking and making are one step of `core_sum.admitting`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from libvgpu import allocation_dirs, ownership, region
from libvgpu.counting import counted
from libvgpu.errors import AllocationRefused, RegionError, RegionUnknownError
from libvgpu.limits import DeviceLimit
from libvgpu.sizes import MIN_BYTES, format_size

from .requests import GpuRequest


@dataclass(frozen=True, slots=True)
class _Taken:
    """What other slices were promised of one GPU."""

    slices: int = 0
    size_bytes: int = 0


def fitted(
    run_dir: Path,
    requests: Sequence[GpuRequest],
    devices: Sequence[DeviceLimit],
    whole_bytes: Mapping[str, int],
) -> tuple[DeviceLimit, ...]:
    """Returns the limits with the memory they may have; a request without any gets what is left.

    Args:
        requests: one for each of ``devices``, in the same order.
        devices: as asked, without a look at other slices.
        whole_bytes: the memory of each GPU, by UUID; 0: NVML does not tell, so it is not judged.

    Raises:
        AllocationRefused: naming the GPU, what was asked, what is taken and what is allowed.
    """
    taken = _promised(run_dir, "")
    fitting = []
    for request, device in zip(requests, devices, strict=True):
        of_gpu = taken.get(device.uuid, _Taken())
        if request.memory_bytes is None:
            left_bytes = max(0, whole_bytes[device.uuid] - of_gpu.size_bytes)
            # With nothing left the whole GPU is asked for, and refused below.
            size_bytes = left_bytes if left_bytes >= MIN_BYTES else device.memory_limit_bytes
            device = replace(device, memory_limit_bytes=size_bytes, physical_bytes=size_bytes)
        if whole_bytes[device.uuid]:
            _require(run_dir, device, of_gpu, whole_bytes[device.uuid])
        fitting.append(device)
    return tuple(fitting)


def require_free_memory(
    run_dir: Path,
    asked: Sequence[DeviceLimit],
    whole_bytes: Mapping[str, int | None],
    apart_from: str,
) -> None:
    """Checks that the GPUs have the memory left that a slice is to have from now on.

    Args:
        asked: the limits of the slice that rise.
        whole_bytes: the memory of each GPU; None where it is not seen from here and 0 where NVML
            does not tell, so it is not judged.
        apart_from: the slice's allocation id.

    Raises:
        AllocationRefused: as `fitted`.
    """
    taken = _promised(run_dir, apart_from)
    for device in asked:
        whole = whole_bytes[device.uuid]
        if whole:
            _require(run_dir, device, taken.get(device.uuid, _Taken()), whole)


def _require(run_dir: Path, device: DeviceLimit, taken: _Taken, whole_bytes: int) -> None:
    free_bytes = whole_bytes - taken.size_bytes
    if device.memory_limit_bytes <= free_bytes:
        return
    has_room = free_bytes >= MIN_BYTES
    allowed = f"at most {_size(free_bytes)} are allowed" if has_room else "none is left"
    raise AllocationRefused(
        f"memory {_size(device.memory_limit_bytes)} of GPU {device.uuid} cannot be given: "
        f"{counted(taken.slices, 'slice')} of {run_dir} have {format_size(taken.size_bytes)} of "
        f"its {format_size(whole_bytes)}, so {allowed}",
        hint=(f"ask for --memory {free_bytes}B or less" if has_room else "wait until one ends")
        + ", or lower another by vgpuctl set ALLOCATION --memory SIZE; a run without --memory has "
        "all that was left; vgpuctl ps shows the slices",
    )


def _size(size_bytes: int) -> str:
    return f"{format_size(size_bytes)} ({size_bytes} bytes)"


def _promised(run_dir: Path, apart_from: str) -> dict[str, _Taken]:
    """Returns what was promised by GPU."""
    found: dict[str, _Taken] = {}
    for allocation in allocation_dirs.list_allocations(run_dir):
        meta = allocation.meta
        if meta.allocation_id == apart_from:
            continue
        if meta.source == ownership.SOURCE and ownership.is_abandoned(run_dir, meta.allocation_id):
            continue
        try:
            limits = region.read_limits(allocation.directory).limits
        except RegionUnknownError:
            raise
        except RegionError:
            continue  # it ended meanwhile, or grants nothing as it is
        for device in limits.devices:
            before = found.get(device.uuid, _Taken())
            size_bytes = device.physical_bytes or device.memory_limit_bytes
            found[device.uuid] = _Taken(before.slices + 1, before.size_bytes + size_bytes)
    return found
