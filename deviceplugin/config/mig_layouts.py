"""``mig``: into which MIG devices GPUs are to be cut; `vgpuctl mig apply` does it.

The agent itself never cuts a GPU: it serves what is there, and tells where that differs.
"""

import re

from deviceplugin.model.mig_layouts import MigLayout
from libvgpu.places import Places

from . import schema
from .fractional import device_match, device_names

PROFILE = re.compile(r"\d+g\.\d+gb(\+[a-z.]+)?")
_MOST_OF_A_GPU = 7


def mig_layouts(entries: list[schema.MigLayout], places: Places) -> tuple[MigLayout, ...]:
    """Returns what the entries say.

    Raises:
        ConfigError: a value that is not allowed.
    """
    found = []
    for number, entry in enumerate(entries):
        path = f"$.mig[{number}]"
        for profile, count in entry.profiles.items():
            at = f"{path}.profiles.{profile}"
            if not PROFILE.fullmatch(profile):
                raise places.error(
                    at,
                    f"{path[2:]}.profiles names {profile!r}, which is not a profile of GPU "
                    "instances; allowed are names such as 1g.5gb and 1g.5gb+me",
                )
            if not 1 <= count <= _MOST_OF_A_GPU:
                raise places.error(at, f"{at[2:]} is {count}, allowed are 1 to {_MOST_OF_A_GPU}")
        match = device_match(entry.match, f"{path}.match", places)
        if match.mig is not None:
            raise places.error(
                f"{path}.match.mig",
                f"{path[2:]}.match.mig cannot be set: an entry is for GPUs, cut or not",
            )
        devices = device_names(entry.devices, f"{path}.devices", places)
        found.append(MigLayout(devices, match, tuple(sorted(entry.profiles.items())), path))
    return tuple(found)
