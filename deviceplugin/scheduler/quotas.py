"""What the pods of a namespace may hold."""

from collections.abc import Mapping
from dataclasses import dataclass

from libvgpu.limits import Family


@dataclass(frozen=True, slots=True)
class Held:
    """What is held of one family."""

    core_units: int = 0
    memory_bytes: int = 0

    def __add__(self, other: "Held") -> "Held":
        return Held(self.core_units + other.core_units, self.memory_bytes + other.memory_bytes)


#: What pods hold, of each family of which they hold anything.
Usage = Mapping[Family, Held]
