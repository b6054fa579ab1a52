"""What one rule of the config's ``limits`` says."""

from dataclasses import dataclass

from libvgpu.limits import ComputeMode


@dataclass(frozen=True, slots=True)
class LimitRule:
    """One entry of ``limits``: whom it meets and to what it changes their limits.

    Attributes:
        core_percent: of the GPU; None leaves it.
        core_part_of_asked: 0..1 of what the container asked; None leaves it.
        pod_labels: key and value of labels that the pod must all have.
        allow_raise: it and `vgpuctl set` may also raise, if the GPU has that much unallocated.
        line: on which line of the file it stands.
    """

    namespace: str = "*"
    container: str = "*"
    core_percent: int | None = None
    core_part_of_asked: float | None = None
    memory_bytes: int | None = None
    compute: ComputeMode | None = None
    pod_labels: tuple[tuple[str, str], ...] = ()
    allow_raise: bool = False
    path: str = ""
    line: int = 0

    @property
    def needs_labels(self) -> bool:
        """It matches only where somebody can tell a pod's labels."""
        return bool(self.pod_labels)
