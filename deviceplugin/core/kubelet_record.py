"""The kubelet's checkpoint held against the book: which allocations it speaks for.

It is the second record: of plain init containers, which podresources leaves out, of pods that are
not listed yet, and of everything while podresources does not answer. Its reader gives the lock.
"""

from collections.abc import Callable
from functools import cache

from deviceplugin.model.allocations import Allocation, AllocationBook
from deviceplugin.recovery.kubelet_checkpoint import CheckpointReading
from deviceplugin.recovery.kubelet_records import allocation_of


def recorded_ids(reading: CheckpointReading) -> frozenset[str]:
    """Returns the allocations that the checkpoint names for a pod which is still there.

    It keeps pods that have ended until it is next written. Where the kubelet's directories of pods
    are not to be seen, all that it names count.
    """
    entries = [e for e in reading.entries if reading.pods is None or e.pod_uid in reading.pods]
    return frozenset(named for entry in entries if (named := allocation_of(entry)))


def recorder(
    read: Callable[[], CheckpointReading], book: AllocationBook
) -> Callable[[Allocation], bool]:
    """Returns what says whether the kubelet has an allocation on record whose pod is there.

    Its checkpoint keeps pods that have ended until it is next written. Without the kubelet's
    directories of pods, nothing speaks for an allocation that was listed before, and a pod of
    init containers is over when nothing else that it had is listed.
    """

    @cache  # read once a listing, and only if somebody asks
    def seen() -> tuple[frozenset[str] | None, list[tuple[str, str | None]]]:
        reading = read()
        return reading.pods, [(each.pod_uid, allocation_of(each)) for each in reading.entries]

    def is_recorded(allocation: Allocation) -> bool:
        pods, recorded = seen()
        uids = {uid for uid, each in recorded if each == allocation.allocation_id}
        if pods is not None:
            return not uids.isdisjoint(pods)
        if allocation.owner is not None:
            return False
        others = {each for uid, each in recorded if uid in uids} - {allocation.allocation_id}
        held = (book.allocations.get(each or "") for each in others)
        return bool(uids) and (
            not others or any(h and h.owner and not h.missing_since for h in held)
        )

    return is_recorded
