"""GPUs cut into MIG instances.

An instance has its part of the GPU's memory, SMs, cache and bandwidth. It is a device of its own in
the machine file, behind the GPUs, so that its books and its timeline are its own.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from ..errors import UsageError
from .profiles import Profile

_INSTANCE = re.compile(r"([1-7])g\.([1-9]\d{0,3})gb")
_COMPUTE_SLICES = 7
_MEMORY_SLICES = 8
_GIB = 1 << 30


def cut(profile: Profile, name: str, count: int) -> Profile:
    """Returns a GPU in MIG mode, cut into instances of one kind.

    Args:
        profile: of the whole GPU.
        name: of the kind as NVIDIA writes it, for example ``3g.40gb``: sevenths of the SMs, and
            memory, which is given in eighths.
        count: how many there are.

    Raises:
        UsageError: this GPU has no such instances, or not so many.
    """
    if profile.compute_capability[0] < 8 or profile.compute_capability[1] != 0:
        raise UsageError(f"a GPU of profile {profile.name!r} has no MIG instances")
    match = _INSTANCE.fullmatch(name)
    if match is None:
        raise UsageError(f"{name!r} is no kind of MIG instance: give for example 3g.40gb")
    compute = int(match[1])
    memory = max(1, round(int(match[2]) * _GIB * _MEMORY_SLICES / profile.memory_bytes))
    most = min(_COMPUTE_SLICES // compute, _MEMORY_SLICES // memory)
    if not 1 <= count <= most:
        raise UsageError(
            f"a GPU of profile {profile.name!r} cannot be cut into {count} instances of {name}: "
            f"at most {most}"
        )
    sms_per_slice = profile.sm_count // _COMPUTE_SLICES // 2 * 2  # SMs come in pairs
    instance = replace(
        profile,
        name=f"{profile.name}-{name}"[:31],
        product=f"{profile.product} MIG {name}"[:63],
        memory_bytes=profile.memory_bytes * memory // _MEMORY_SLICES,
        memory_bytes_per_second=profile.memory_bytes_per_second * memory // _MEMORY_SLICES,
        l2_bytes=profile.l2_bytes * memory // _MEMORY_SLICES,
        sm_count=sms_per_slice * compute,
        instances=(),
    )
    return replace(profile, instances=(instance,) * count)


def all_devices(profiles: Sequence[Profile]) -> list[tuple[Profile, int | None]]:
    """Returns every device of a machine: its GPUs, then their instances, with the GPU of each."""
    gpus: list[tuple[Profile, int | None]] = [(replace(p, instances=()), None) for p in profiles]
    return gpus + [(part, gpu) for gpu, p in enumerate(profiles) for part in p.instances]
