"""How much memory of a container is unaccounted: only what is steady, and beyond doubt. Pure.

The shim reserves before the driver takes and gives back after it, so at every moment an honest
container's ledger says at least what its programs asked for. NVML may still say more, since the
driver takes whole blocks and loads code that nobody asked for. `reserve_bytes` is what that may
come to; a container is charged what lies beyond it.

*Believed* of a ledger is never more than the slice ever was: what a tenant writes into it can hide
no more than it may hold anyway. Nothing is known of a ledger that cannot be read, so that much is
believed of it. And no container's excess is more than what the GPU has in use beyond what all of
them are believed to hold: where a driver counted shared memory for each process that opened it,
the sum over processes would say too much, and the GPU's own figure does not.

`Steady` takes the least of all looks of `STEADY_S`, so what comes and goes never counts.
"""

from collections import deque
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass

MIB = 1 << 20
STEADY_S = 2.0
#: PodResourcesSync further apart than this say nothing of the time between.
_GAP_S = 5.0
#: Small allocations of a process lie in blocks of 2 MiB, of which one of each of the driver's two
#: sizes is filled in part.
_BLOCKS_BYTES = 4 * MIB
#: Code and local memory that a context loads by and by: this part of what it costs in the
#: beginning …
_CONTEXT_PART = 8
#: … or this where the host has no estimate of that.
_CONTEXT_BYTES = 64 * MIB
#: Large allocations are rounded up to blocks: 1 MiB on average of each, which has 64 MiB on
#: average in the programs that fill a slice.
_ROUNDING_PART = 64
#: A charge moves by this part of it at least, so that no limit is written at every check.
_STEP_PART = 16


@dataclass(frozen=True, slots=True)
class Held:
    """What one container has of one GPU at one moment.

    Attributes:
        nvml_bytes: what NVML says of its processes, together.
        ledger_bytes: what its ledger says; None where it cannot be read.
        slice_bytes: the most that its slice was since it began.
        context_bytes: what a context is expected to cost; 0 where nobody knows.
        known_processes: how many of its processes on this GPU its ledger knows.
    """

    nvml_bytes: int
    ledger_bytes: int | None
    slice_bytes: int
    context_bytes: int
    known_processes: int

    @property
    def believed_bytes(self) -> int:
        """What the ledger is believed to account for."""
        if self.ledger_bytes is None:
            return self.slice_bytes
        return min(self.ledger_bytes, self.slice_bytes)


def reserve_bytes(held: Held) -> int:
    """Returns how much more than its ledger NVML may say of an honest container."""
    context = held.context_bytes // _CONTEXT_PART or _CONTEXT_BYTES
    return held.known_processes * (_BLOCKS_BYTES + context) + held.believed_bytes // _ROUNDING_PART


def excess_bytes(held: Mapping[str, Held], used_bytes: int | None) -> dict[str, int]:
    """Returns what each container of one GPU has beyond ledger and reserve, in whole MiB.

    Args:
        held: by allocation id.
        used_bytes: of the whole GPU; None where NVML cannot say.
    """
    explained = sum(min(each.believed_bytes, each.nvml_bytes) for each in held.values())
    most = None if used_bytes is None else max(0, used_bytes - explained)
    found = {}
    for allocation_id, each in held.items():
        excess = max(0, each.nvml_bytes - each.believed_bytes)
        if most is not None:
            excess = min(excess, most)
        found[allocation_id] = max(0, excess - reserve_bytes(each)) // MIB * MIB
    return found


def beyond_slice_bytes(held: Mapping[str, Held], excess: Mapping[str, int]) -> dict[str, int]:
    """Returns what of an excess each container has beyond the most that its slice ever was.

    The rest of the excess fits into the slice beside what the ledger says, so it is charged and
    harms nobody. Without a ledger the answer is 0: a missing file is the host's fault, and if a
    container damaged its file, all its processes are reported for that.
    """
    found = {}
    for allocation_id, size in excess.items():
        each = held[allocation_id]
        room = size if each.ledger_bytes is None else each.slice_bytes - each.believed_bytes
        found[allocation_id] = max(0, size - room)
    return found


def next_charge(charged_bytes: int, steady_bytes: int) -> int:
    """Returns what is to be charged from now on: the same where it has hardly changed."""
    step = max(2 * MIB, charged_bytes // _STEP_PART)
    if charged_bytes and steady_bytes and abs(steady_bytes - charged_bytes) < step:
        return charged_bytes
    return steady_bytes


class Steady:
    """The least that was seen of many things, each over the last `STEADY_S`."""

    def __init__(self) -> None:
        """Has seen nothing."""
        self._seen: dict[Hashable, deque[tuple[float, int]]] = {}

    def note(self, key: Hashable, now_s: float, value: int) -> int | None:
        """Notes a value; returns the least of the window, None while that is not known yet.

        Args:
            now_s: on a clock that never goes back.
        """
        seen = self._seen.setdefault(key, deque())
        if seen and now_s - seen[-1][0] > _GAP_S:
            seen.clear()
        if not value:
            seen.clear()  # nothing is less
        seen.append((now_s, value))
        while len(seen) > 1 and seen[1][0] <= now_s - STEADY_S:
            seen.popleft()
        least = min(each for _, each in seen)
        return least if not least or now_s - seen[0][0] >= STEADY_S else None

    def keep(self, keys: Collection[Hashable]) -> None:
        """Forgets everything else."""
        for key in self._seen.keys() - set(keys):
            del self._seen[key]
