"""What `vgpuctl set` says of one container, as values.

An `Override` is kept with the container's allocation and in the agent's checkpoint until it is
cleared or the container ends. What it is worth next to the config's rules, `limits.resolver` says.
"""

from dataclasses import dataclass

from libvgpu.limits import ComputeMode, ContainerLimits


@dataclass(frozen=True, slots=True)
class Override:
    """Values that an operator set; None leaves the one that rules and request give.

    Attributes:
        core_percent: of one GPU, 1..100.
        memory_bytes: at least 1.
        compute: family vgpu only.
    """

    core_percent: int | None = None
    memory_bytes: int | None = None
    compute: ComputeMode | None = None

    def over(self, older: "Override | None") -> "Override":
        """Returns this one where it says something, ``older`` elsewhere."""
        if older is None:
            return self
        return Override(
            older.core_percent if self.core_percent is None else self.core_percent,
            older.memory_bytes if self.memory_bytes is None else self.memory_bytes,
            older.compute if self.compute is None else self.compute,
        )


@dataclass(frozen=True, slots=True)
class LimitChange:
    """What setting or clearing an override did.

    Attributes:
        owner: NAMESPACE/POD/CONTAINER, empty while it is not known.
    """

    owner: str
    before: ContainerLimits
    after: ContainerLimits
