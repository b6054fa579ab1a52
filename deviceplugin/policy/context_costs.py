"""What a context takes on a kind of GPU, as containers of this node measured it.

A container's processes write into `usage` what their first context was measured to take. The file
is the tenant's to write, so a word of it counts for others within bounds alone: it is more than
nothing, no more than a process of that container holds by the host's own NVML, and of the last
containers the lower median counts, so that one cannot move it by itself. Who is told too little
measures, and who is told too much is refused a context: so of two the lesser counts.

Serialised by its caller.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median_low

from deviceplugin.model.gpus import Gpu

#: So many containers of a kind are remembered, each with its last word.
MOST_CONTAINERS = 9
#: No driver's context takes so little.
LEAST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class ContextKind:
    """On what a context takes as much as any other.

    Attributes:
        product: what NVML calls the model.
        driver: version of the driver.
        under_mps: as a client of an MPS server, which takes less.
    """

    product: str
    driver: str
    under_mps: bool


@dataclass(frozen=True, slots=True)
class MeasuredContext:
    """What a container's file says of one GPU.

    Attributes:
        context_bytes: what its first context was measured to take.
        held_bytes: the most that one of its processes holds by the host's NVML.
    """

    allocation_id: str
    uuid: str
    context_bytes: int
    held_bytes: int


def kind_of(gpu: Gpu, under_mps: bool) -> ContextKind | None:
    """Returns on what contexts of a GPU are made; None where the driver is not known."""
    return ContextKind(gpu.name, gpu.driver, under_mps) if gpu.driver else None


class ContextCosts:
    """What was measured, by kind and container."""

    def __init__(self, measured: Mapping[ContextKind, Mapping[str, int]] | None = None) -> None:
        """Takes over what was kept: bytes by allocation id, the last one last, by kind."""
        self._measured = {kind: dict(by_id) for kind, by_id in (measured or {}).items()}

    @property
    def measured(self) -> Mapping[ContextKind, Mapping[str, int]]:
        """All that is remembered."""
        return self._measured

    def of(self, kind: ContextKind | None) -> int:
        """Returns what a context is expected to take, in bytes; 0 where nobody knows."""
        known = self._measured.get(kind) if kind is not None else None
        return median_low(known.values()) if known else 0

    def note(self, kind: ContextKind, found: MeasuredContext) -> bool:
        """Takes what a container measured on a GPU of a kind; returns whether it is news."""
        known = self._measured.setdefault(kind, {})
        is_sane = LEAST_BYTES <= found.context_bytes <= found.held_bytes
        if not is_sane or known.get(found.allocation_id) == found.context_bytes:
            return False
        known.pop(found.allocation_id, None)  # the last word comes last
        known[found.allocation_id] = found.context_bytes
        for oldest in list(known)[:-MOST_CONTAINERS]:
            del known[oldest]
        return True
