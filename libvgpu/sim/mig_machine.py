"""What the GPUs of a machine are cut into, read from it and made.

An open machine of `machine` is meant by ``native``; a change of it is a change of the machine's
file, kept apart from others by `sim/core/mig_change.c`.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from .._native import ffi, lib
from .mig import MigProfile, Placed
from .profiles import Profile


class Instance(NamedTuple):
    """A GPU instance.

    Attributes:
        device: the index of its MIG device on the machine.
        profile: the index of its profile in the GPU's table.
        start: the slice of memory where it begins.
        has_compute: it has its compute instance, so that its MIG device can be used.
    """

    device: int
    profile: int
    start: int
    has_compute: bool


def instances(native: Any, gpu: int) -> list[Instance]:
    """Returns the GPU instances of a GPU in the order of their ids."""
    found = ffi.new("struct sim_mig_instance[]", lib.SIM_MIG_SLOTS)
    count = lib.sim_mig_instances(native, gpu, found)
    return [
        Instance(each.device, each.profile, each.start, bool(each.has_compute))
        for each in found[0:count]
    ]


def layout(native: Any, gpu: int, kinds: Sequence[MigProfile]) -> tuple[Placed, ...] | None:
    """Returns what a GPU is cut into, by start; None where it is not in MIG mode."""
    if lib.sim_mig_mode(native, gpu) != 1:
        return None
    found = sorted(instances(native, gpu), key=lambda instance: instance.start)
    return tuple(Placed(kinds[each.profile].name, each.start) for each in found)


def cut(native: Any, gpu: int, profile: Profile) -> int:
    """Puts a GPU into MIG mode and makes the instances of its profile's layout.

    Returns:
        0, or a negative errno.
    """
    names = [kind.name for kind in profile.mig_profiles]
    status = int(lib.sim_mig_set_mode(native, gpu, 1))
    for placed in profile.mig_layout or ():
        if status < 0:
            break
        kind = names.index(placed.profile)
        status = int(lib.sim_mig_create(native, gpu, kind, placed.start))
        if status >= 0:
            status = int(lib.sim_mig_create_compute(native, gpu, status))
    return min(status, 0)
