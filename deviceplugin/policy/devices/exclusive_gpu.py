"""Which GPUs are to be under MPS now, and which are exclusive. Pure.

A container of family mps that has all core units of its GPUs is no client of MPS: nobody else can
have compute there, so it gets an exclusive GPU, its daemon stopped and its compute mode as found.
In family vgpu with ``concurrency: mps`` that holds of a container with several whole GPUs, since a
process is a client of one daemon, and each GPU has its own. One with all core of one GPU is a
client there: containers with memory alone may have what it leaves over.
Only an init container of the same pod may need such a GPU otherwise, before it or, when the pod's
sandbox is made again, after it: then the container that was let start last decides.
"""

from collections.abc import Mapping, Set

from deviceplugin.model.allocations import Allocation, AllocationBook
from deviceplugin.model.concurrency import Concurrency
from deviceplugin.model.gpus import Gpu
from deviceplugin.model.units import CORE_UNITS_PER_GPU, Half
from deviceplugin.model.whole_devices import MOST_MPS_CLIENTS
from libvgpu.errors import AllocationRefused
from libvgpu.limits import Family

from .layout import Layout

#: Clients that one MPS server takes on a GPU, from Volta on and before.
_CLIENTS, _CLIENTS_BEFORE_VOLTA = MOST_MPS_CLIENTS, 16
_VOLTA_MAJOR = 7


def is_exclusive(allocation: Allocation) -> bool:
    """Returns whether a container has its GPUs to itself, without MPS, where others have MPS."""
    if allocation.concurrency is Concurrency.MPS:
        return len(allocation.uuids) > 1
    return allocation.family is Family.MPS and all(
        allocation.count(Half.CORE, uuid) == CORE_UNITS_PER_GPU for uuid in allocation.uuids
    )


def under_mps(
    layout: Layout, book: AllocationBook, last_started: Mapping[str, str]
) -> dict[str, bool]:
    """Returns the GPUs that are to be under MPS, and whether containers have slices of them.

    A GPU that still carries slices of the sharing it had before keeps that.

    Args:
        last_started: by GPU, the allocation that was let start there last.
    """
    now_mps = {shared.gpu.uuid for shared in layout.served_by_mps()}
    carrying = {uuid for h in book.allocations.values() if h.served_by_mps for uuid in h.uuids}
    found = {}
    for uuid in sorted(now_mps | carrying):
        here = book.on_gpu(uuid)
        if any(not allocation.served_by_mps for allocation in here):
            continue
        if not _is_exclusive_now(here, last_started.get(uuid)):
            found[uuid] = bool(here)
    return found


def _is_exclusive_now(here: list[Allocation], last_started: str | None) -> bool:
    exclusive = [allocation for allocation in here if is_exclusive(allocation)]
    if not exclusive or len(exclusive) == len(here):
        return bool(exclusive)
    last = next(
        (allocation for allocation in here if allocation.allocation_id == last_started), None
    )
    if last is not None:
        return is_exclusive(last)
    return any(allocation.started for allocation in exclusive)


def clients_most(gpu: Gpu) -> int:
    """Returns how many clients MPS takes on a GPU."""
    if gpu.compute_major is not None and gpu.compute_major < _VOLTA_MAJOR:
        return _CLIENTS_BEFORE_VOLTA
    return _CLIENTS


def is_full(gpu: Gpu, book: AllocationBook, units: Set[str] = frozenset()) -> bool:
    """Returns whether as many containers have slices of a GPU as MPS takes clients.

    Args:
        units: of the container that asks; who holds one of them is an init container of its pod.
    """
    others = [h for h in book.on_gpu(gpu.uuid) if units.isdisjoint(h.units)]
    return len(others) >= clients_most(gpu)


def check_clients(gpu: Gpu, book: AllocationBook, units: Set[str], what: str) -> None:
    """Refuses a container that could not become a client of MPS.

    Args:
        units: that it was given.
        what: the request, as the message names it.
    """
    if is_full(gpu, book, units):
        raise AllocationRefused(
            f"{what}: GPU {gpu.uuid} carries {clients_most(gpu)} slices already, and MPS takes no "
            "more clients on a GPU; ask again when one has ended"
        )
