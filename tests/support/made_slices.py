"""Slices in a run directory, as an agent or `vgpuctl run` makes them."""

from pathlib import Path
from typing import Any

from libvgpu import allocation_dirs, region
from libvgpu.limits import ContainerLimits, DeviceLimit, Family


def make_slice(
    run_dir: Path,
    name: str,
    /,
    *devices: DeviceLimit,
    family: Family = Family.VGPU,
    source: str = "kubelet",
    **who: Any,
) -> allocation_dirs.AllocationDir:
    """Makes a slice.

    Args:
        source: ``kubelet``, or ``run``.
        who: has it, by `AllocationMeta`'s names.
    """
    directory = run_dir / "allocations" / name
    directory.parent.mkdir(parents=True, exist_ok=True)
    region.create(directory, ContainerLimits(name, family, devices))
    meta = allocation_dirs.AllocationMeta(name, family.name.lower(), source, 1000.0, **who)
    allocation_dirs.write_meta(directory, meta)
    return allocation_dirs.AllocationDir(directory, meta)
