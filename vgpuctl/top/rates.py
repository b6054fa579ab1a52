"""What happened between two looks at the slices, and the last of it for sparklines. Pure.

Counters come from files that tenants write, and a container may be another under the same id: one
that fell is no rate, and none is negative.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from libvgpu.limits import DeviceLimit, Family
from libvgpu.region import DeviceUsage
from libvgpu.slices import Slice

from ..observe import container_usage, enforced_core_percent
from ..render import printable

#: Looks that a sparkline shows.
KEPT = 12


@dataclass(frozen=True, slots=True)
class TopRow:
    """One slice on one GPU, as the screen shows it.

    Attributes:
        who: pod and container, or the name or command of a `vgpuctl run`.
        gpu_uuid: of its GPU or MIG device; empty where its files are damaged.
        memory_history: parts of the limit in use, the oldest look first.
        core_percent: the share that it may have; 0 is left-overs only.
        share_percent: of the GPU's time since the look before; None where nothing is measured.
        share_history: the same of the last looks.
        is_estimated: that comes from samples.
        held_percent: of the time since the look before, how long launches were held back; of
            several at once that sums up.
        windows_a_second: turns on a contended GPU.
        refused: allocations, since its start.
        refused_lately: those of them since the look before.
        mode: how the GPU is shared now.
        node: where it is, of several nodes; empty of one.
    """

    allocation_id: str
    who: str
    state: str
    gpu_uuid: str = ""
    family: str = ""
    memory_used_bytes: int = 0
    memory_limit_bytes: int = 0
    memory_history: tuple[float, ...] = ()
    core_percent: int = 0
    share_percent: float | None = None
    share_history: tuple[float, ...] = ()
    is_estimated: bool = False
    held_percent: float = 0.0
    windows_a_second: float = 0.0
    refused: int = 0
    refused_lately: int = 0
    processes: int = 0
    mode: str = ""
    node: str = ""


@dataclass(slots=True)
class _Seen:
    """What one slice had on one GPU at the last look."""

    at_s: float
    usage: DeviceUsage
    memory: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT))
    share: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT))


class Rates:
    """Remembers the look before."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], _Seen] = {}

    def look(self, slices: Sequence[Slice], now_s: float) -> list[TopRow]:
        """Returns a row for each slice and GPU.

        Args:
            now_s: on a monotonic clock.
        """
        rows: list[TopRow] = []
        seen: dict[tuple[str, str], _Seen] = {}
        for found in slices:
            if found.limits is None or found.usage is None:
                rows.append(TopRow(found.meta.allocation_id, who(found), found.state))
                continue
            for index, limit in enumerate(found.limits.devices):
                key = found.meta.allocation_id, limit.uuid
                usage = container_usage(found.usage, index)
                if usage is None:
                    continue
                mine = self._noted(key, usage, limit, now_s)
                rows.append(_row(found, index, limit, usage, self._seen.get(key), mine))
                seen[key] = mine
        self._seen = seen
        return rows

    def _noted(
        self, key: tuple[str, str], usage: DeviceUsage, limit: DeviceLimit, now_s: float
    ) -> _Seen:
        before = self._seen.get(key)
        mine = _Seen(now_s, usage)
        if before is not None:
            mine.memory.extend(before.memory)
            mine.share.extend(before.share)
        mine.memory.append(_part(usage.used_bytes, limit.memory_limit_bytes))
        if before is not None and now_s > before.at_s:
            mine.share.append(_share(usage, before, now_s) / 100)
        return mine


def who(found: Slice) -> str:
    """Returns whose a slice is; tenants may write what they like into their own names."""
    meta = found.meta
    if meta.pod:
        return printable(f"{meta.namespace}/{meta.pod}/{meta.container}")
    return printable(meta.name or " ".join(meta.command)) or "-"


def _row(
    found: Slice,
    index: int,
    limit: DeviceLimit,
    usage: DeviceUsage,
    before: _Seen | None,
    mine: _Seen,
) -> TopRow:
    assert found.limits is not None
    assert found.usage is not None
    since_s = mine.at_s - before.at_s if before is not None else 0.0
    held_ns = windows = refused = 0
    if before is not None and since_s > 0:
        held_ns = max(0, usage.held_ns - before.usage.held_ns)
        windows = max(0, usage.windows - before.usage.windows)
        refused = max(0, usage.refused_count - before.usage.refused_count)
    is_known = bool(usage.gpu_time_ns or usage.launches)
    return TopRow(
        allocation_id=found.meta.allocation_id,
        who=who(found),
        state=found.state,
        gpu_uuid=limit.uuid,
        family=found.meta.family,
        memory_used_bytes=usage.used_bytes,
        memory_limit_bytes=limit.memory_limit_bytes,
        memory_history=tuple(mine.memory),
        core_percent=enforced_core_percent(found.limits.family, limit),
        share_percent=_first_share(usage, mine) if is_known else None,
        share_history=tuple(mine.share),
        is_estimated=usage.is_estimated,
        held_percent=held_ns / 1e7 / since_s if since_s > 0 else 0.0,
        windows_a_second=windows / since_s if since_s > 0 else 0.0,
        refused=usage.refused_count,
        refused_lately=refused,
        processes=sum(p.alive and not (p.shared or p.ended) for p in found.usage.processes),
        mode="" if found.limits.family is Family.MPS else str(found.modes[index].value),
    )


def _first_share(usage: DeviceUsage, mine: _Seen) -> float:
    """Returns the share since the look before; at the first one what the shim itself says."""
    return mine.share[-1] * 100 if mine.share else float(usage.share_percent)


def _share(usage: DeviceUsage, before: _Seen, now_s: float) -> float:
    """Returns the percentage of a GPU's time since then, of which there is no more than all."""
    used_ns = max(0, usage.gpu_time_ns - before.usage.gpu_time_ns)
    return min(100.0, used_ns / 1e7 / (now_s - before.at_s))


def _part(used: int, limit: int) -> float:
    return min(1.0, used / limit) if limit else 0.0
