"""The simulated GPU: profiles of models, machines made of them, and their books.

The driver libraries themselves are C (``core``, ``driver``, ``nvml``); this package makes and reads
the machines that they run on.
"""

from .books import ClientBooks, DeviceBooks, SimDevice
from .machine import Machine
from .named import acquire, machines_root, release, sweep
from .profiles import PROFILES, Profile, find_profile, ideal_profile
from .spec import MachineSpec, parse_spec

__all__ = [
    "PROFILES",
    "ClientBooks",
    "DeviceBooks",
    "Machine",
    "MachineSpec",
    "Profile",
    "SimDevice",
    "acquire",
    "find_profile",
    "ideal_profile",
    "machines_root",
    "parse_spec",
    "release",
    "sweep",
]
