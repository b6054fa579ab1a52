"""Labels of what is free of the GPUs that are shared in fractions; they are ours alone.

Pure. Of each GPU: percent of compute and MiB of memory. Of each family: the largest slice that one
GPU has room for, which is the one whose scarcer half is the largest part of its GPU.
"""

from collections.abc import Sequence

from .offered import FreeSlice, Offered

#: Whether GPUs are in family vgpu; it is always written, so it tells our files from others'.
CAPABLE = "vgpu.capable"
_MIB = 1 << 20
_FAMILY = "vgpu"


def free_labels(offered: Offered) -> dict[str, str]:
    """Returns the labels of what is free."""
    is_capable = any(part.family == _FAMILY for part in offered.slices)
    labels = {CAPABLE: "true" if is_capable else "false"}
    families: dict[str, list[FreeSlice]] = {}
    for part in offered.slices:
        families.setdefault(part.family, []).append(part)
    for family, slices in families.items():
        for part in slices:
            labels[f"{family}.free-core.{part.place}"] = str(part.core_percent)
            labels[f"{family}.free-memory.{part.place}"] = str(part.memory_bytes // _MIB)
        largest = largest_slice(slices)
        labels[f"{family}.largest-free-core"] = str(largest.core_percent)
        labels[f"{family}.largest-free-memory"] = str(largest.memory_bytes // _MIB)
    return {f"{offered.domain}/{key}": value for key, value in labels.items()}


def largest_slice(slices: Sequence[FreeSlice]) -> FreeSlice:
    """Returns the GPU with room for the largest slice; ``slices`` has one at least."""

    def size(part: FreeSlice) -> tuple[float, int, int]:
        parts = part.core_percent / 100, part.memory_bytes / max(1, part.total_bytes)
        return min(parts), part.core_percent, part.memory_bytes

    return max(slices, key=size)
