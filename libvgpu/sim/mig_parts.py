"""What the MIG devices of a simulated GPU are like, before there is a machine.

The machine itself makes them in `sim/core/mig_change.c`, and `native` holds the two together.
"""

from dataclasses import replace

from .mig import SLICES
from .profiles import MIB, Profile


def mig_devices(profile: Profile) -> tuple[Profile, ...]:
    """Returns the MIG devices of a GPU with a layout, in the order of their ids."""
    kinds = {kind.name: kind for kind in profile.mig_profiles}
    placed = [(kinds[each.profile], each.start) for each in profile.mig_layout or ()]
    # The driver's ids grow with the number of parts of that size, then with the place.
    placed.sort(key=lambda each: (-each[0].size, each[1]))
    return tuple(
        replace(
            profile,
            product=f"{profile.product} MIG {kind.name}",
            memory_bytes=kind.memory_mib * MIB,
            memory_bytes_per_second=profile.memory_bytes_per_second // SLICES * kind.size,
            l2_bytes=profile.l2_bytes // SLICES * kind.size,
            sm_count=kind.sm_count,
            mig_profiles=(),
            mig_layout=None,
        )
        for kind, _ in placed
    )
