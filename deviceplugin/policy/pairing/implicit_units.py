"""What a container gets that it did not ask for in so many words: pure, applied when it starts.

* Only core: the same percentage of the GPU's memory, rounded down to units, at least one.
* Whole GPUs: all their memory.
* Only memory, in family vgpu: no compute of its own. It runs on what others leave over, with the
  least weight. In family mps it is refused: MPS knows a most for each client, fixed at its start,
  and nothing that is left over. Without one the container would take what others reserved; 1 %
  would be a slice that nobody asked for.

The units that this uses up are *implicit*: taken from free ones and withdrawn from the kubelet
until the container ends, so that the kubelet's sums stay true.

Memory of a container that has ended may still be on the book: nobody asked the kubelet for memory,
so no offer of its says that it is free. Then the start can wait (`MemoryNotFreeYet`).
"""

from collections.abc import Set
from dataclasses import replace

from deviceplugin.model.allocations import Allocation, AllocationBook
from deviceplugin.model.units import CORE_UNITS_PER_GPU, Half, resource_name
from deviceplugin.policy.devices.layout import Layout, SharedGpu
from deviceplugin.policy.devices.offer import fits_layout, unit_names
from libvgpu.errors import AllocationRefused
from libvgpu.limits import Family
from libvgpu.sizes import format_size


class MemoryNotFreeYet(AllocationRefused):
    """The default needs memory of containers that seem to have ended, and whose end will be known
    in a moment.
    """


def default_memory(memory_units: int, core_units: int) -> int:
    """Returns how many memory units come with core alone.

    Args:
        memory_units: of the GPU in all.
    """
    return max(1, memory_units * core_units // CORE_UNITS_PER_GPU)


def complete_start(
    layout: Layout,
    book: AllocationBook,
    allocation: Allocation,
    shown: Set[str] | None = None,
) -> Allocation:
    """Returns the allocation as its container may start.

    Args:
        shown: units that podresources shows now; None where it does not answer.

    Raises:
        MemoryNotFreeYet: it cannot be honoured now, but perhaps in a moment.
        AllocationRefused: the default cannot be honoured.
    """
    if allocation.whole or allocation.implicit_units or allocation.replicas:
        return replace(allocation, settled=True)
    core, memory = (resource_name(layout.resource_domain, allocation.family, h) for h in Half)
    if not allocation.core:
        if allocation.family is Family.MPS:
            raise AllocationRefused(
                f"{memory}: {len(allocation.memory)} without {core} cannot be honoured, since MPS "
                f"reserves no left-over compute; ask for {core} too, or for memory alone of a GPU "
                "of family vgpu"
            )
        return replace(allocation, settled=True)
    what = f"{core}: {len(allocation.core)} without {memory}"
    more: list[str] = []
    for uuid in allocation.uuids:
        shared = layout.find(uuid)
        if shared is None or not fits_layout(shared, [allocation]):
            raise AllocationRefused(f"GPU {uuid} of {core} is not shared in this way any more")
        more += _memory_of_core(shared, book, allocation, shown, what)
    return replace(allocation, implicit_units=tuple(more), settled=True)


def _memory_of_core(
    shared: SharedGpu,
    book: AllocationBook,
    allocation: Allocation,
    shown: Set[str] | None,
    what: str,
) -> list[str]:
    core_units = allocation.count(Half.CORE, shared.gpu.uuid)
    wanted = default_memory(shared.memory_units, core_units)
    # The implicit units of an init container of the same pod serve the next one as well.
    ancestors = {h.allocation_id for unit in allocation.core for h in book.holders(unit)}
    names = unit_names(shared, Half.MEMORY)
    free = [u for u in names if {h.allocation_id for h in book.holders(u)} <= ancestors]
    if len(free) < wanted:
        ending = ancestors | {
            h.allocation_id for h in book.on_gpu(shared.gpu.uuid) if _seems_ended(h, shown)
        }
        hoped = [u for u in names if {h.allocation_id for h in book.holders(u)} <= ending]
        kind = AllocationRefused if len(hoped) < wanted else MemoryNotFreeYet
        raise kind(
            f"{what} means the same percentage of memory, {wanted} units of "
            f"{format_size(shared.memory_unit_bytes)}, but {len(free)} are free on GPU "
            f"{shared.gpu.uuid}"
        )
    # From the top: the kubelet is steered to the lowest units, so it is least likely to offer them.
    return free[-wanted:]


def _seems_ended(allocation: Allocation, shown: Set[str] | None) -> bool:
    """Returns whether podresources does not show an allocation (any more)."""
    if shown is None:
        return bool(allocation.missing_since)
    return shown.isdisjoint(allocation.given)
