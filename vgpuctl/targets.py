"""Which allocation a word on the command line means. Pure."""

from collections.abc import Sequence

from libvgpu.allocation_dirs import AllocationDir
from libvgpu.errors import AllocationRefused, UnknownAllocation, UsageError

_SHOWN = 5  # candidates that a message names


def find_allocation(word: str, among: Sequence[AllocationDir]) -> AllocationDir:
    """Returns the one allocation that a word names.

    Args:
        word: an id, the beginning of one, the name of a `vgpuctl run`, NAMESPACE/POD or
            NAMESPACE/POD/CONTAINER.
        among: those there are.

    Raises:
        UsageError: the word has another form.
        UnknownAllocation: there is none of that name.
        AllocationRefused: there are several; the message names them.
    """
    names = word.split("/")
    if not all(names) or len(names) > 3:
        raise UsageError(
            f"allocation {word!r} is neither an allocation's id (or the beginning of one) nor "
            "the name of a run, NAMESPACE/POD or NAMESPACE/POD/CONTAINER"
        )
    if len(names) == 1:
        found = (
            [a for a in among if a.meta.allocation_id == word]
            or [a for a in among if a.meta.name == word]
            or [a for a in among if a.meta.allocation_id.startswith(word)]
        )
    else:
        found = [a for a in among if _full_name(a)[: len(names)] == names]
    if not found:
        raise UnknownAllocation(
            f"allocation {word!r} is not there", hint="vgpuctl ps shows the allocations"
        )
    if len(found) > 1:
        shown = ", ".join(_described(a) for a in found[:_SHOWN])
        rest = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        raise AllocationRefused(
            f"allocation {word!r} may mean {len(found)} of them: {shown}{rest}",
            hint="give more of the id, or NAMESPACE/POD/CONTAINER",
        )
    return found[0]


def _full_name(allocation: AllocationDir) -> list[str]:
    meta = allocation.meta
    return [meta.namespace, meta.pod, meta.container]


def _described(allocation: AllocationDir) -> str:
    meta = allocation.meta
    name = meta.name or "/".join(_full_name(allocation)).strip("/") or " ".join(meta.command)[:40]
    return f"{allocation.meta.allocation_id} ({name or 'not yet known'})"
