"""What contexts take on a kind of GPU, and the blocks it gives memory in, as containers measured.

A container's processes write both into `usage`. The file is the tenant's to write, so a word of it
counts for others within bounds alone, and one container among others moves nothing: of the last
ones the median counts.

- Of a context: more than nothing, and no more than a process of that container holds by the host's
  own NVML. Who is told too little measures, and who is told too much is refused a context: so of
  two the lesser counts.
- Of blocks: once three have said them, and of two in the middle the larger counts, since who is
  told too little charges too little. Who is told nothing asks the driver.

Serialised by its caller.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import median_high, median_low

from deviceplugin.model.gpus import Gpu

#: So many containers of a kind are remembered, each with its last word.
MOST_CONTAINERS = 9
#: No driver's context takes so little.
LEAST_CONTEXT_BYTES = 1 << 20
#: So many containers have to have said how large blocks are.
LEAST_FOR_BLOCKS = 3


@dataclass(frozen=True, slots=True)
class GpuKind:
    """On what sizes are the same.

    Attributes:
        product: what NVML calls the model.
        driver: version of the driver.
        under_mps: as a client of an MPS server, whose contexts take less.
    """

    product: str
    driver: str
    under_mps: bool


@dataclass(frozen=True, slots=True)
class Sizes:
    """In bytes; 0 where nobody knows.

    Attributes:
        context_bytes: what a context takes.
        block_bytes: what the GPU gives memory in.
    """

    context_bytes: int = 0
    block_bytes: int = 0


@dataclass(frozen=True, slots=True)
class MeasuredSizes:
    """What a container's file says of one GPU.

    Attributes:
        sizes: of a context that was its first, 0 where it may be another's.
        held_bytes: the most that one of its processes holds by the host's NVML.
    """

    allocation_id: str
    uuid: str
    sizes: Sizes
    held_bytes: int


def kind_of(gpu: Gpu, under_mps: bool) -> GpuKind | None:
    """Returns of what kind a GPU is; None where the driver is not known."""
    return GpuKind(gpu.name, gpu.driver, under_mps) if gpu.driver else None


class LearntSizes:
    """What was measured, by kind and container."""

    def __init__(self, measured: Mapping[GpuKind, Mapping[str, Sizes]] | None = None) -> None:
        """Takes over what was kept: by allocation id, the last one last, by kind."""
        self._measured = {kind: dict(by_id) for kind, by_id in (measured or {}).items()}

    @property
    def measured(self) -> Mapping[GpuKind, Mapping[str, Sizes]]:
        """All that is remembered."""
        return self._measured

    def of(self, kind: GpuKind | None) -> Sizes:
        """Returns what is known of a kind."""
        known = self._measured.get(kind, {}).values() if kind is not None else ()
        contexts = [sizes.context_bytes for sizes in known if sizes.context_bytes]
        blocks = [sizes.block_bytes for sizes in known if sizes.block_bytes]
        return Sizes(
            median_low(contexts) if contexts else 0,
            median_high(blocks) if len(blocks) >= LEAST_FOR_BLOCKS else 0,
        )

    def note(self, kind: GpuKind, found: MeasuredSizes) -> bool:
        """Takes what a container measured on a GPU of a kind; returns whether it is news."""
        known = self._measured.setdefault(kind, {})
        sizes = found.sizes
        if not LEAST_CONTEXT_BYTES <= sizes.context_bytes <= found.held_bytes:
            sizes = replace(sizes, context_bytes=0)
        if sizes == Sizes() or known.get(found.allocation_id) == sizes:
            return False
        known.pop(found.allocation_id, None)  # the last word comes last
        known[found.allocation_id] = sizes
        for oldest in list(known)[:-MOST_CONTAINERS]:
            del known[oldest]
        return True
