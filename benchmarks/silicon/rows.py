"""What an H100 showed on 2026-11-22, as rows to measure again.

Driver 580.159.04, default compute mode, one GPU to itself; "%" is of what the same program gets
done alone and without a shim. What it did bare is a target. What the shim of that day reached is
history: a row that is held has a bar of its own, or none.
"""

from dataclasses import dataclass

from libvgpu.limits import ComputeMode

from ..tenant_programs import TenantClient
from .bench import Load
from .holding import Hold

US, MS = 1_000, 1_000_000
#: Of one tenant's share, of each of several, and of what they get done together.
SHARE_POINTS, SPLIT_POINTS, TOTAL_POINTS = 0.5, 1.0, 2.0
#: What tenants that fill the GPU must get done together, in turns and through one MPS server.
LEAST_TOTAL, LEAST_THROUGH_MPS = 97.5, 99.0


@dataclass(frozen=True, slots=True)
class Row:
    """Tenants next to each other, and what each got done on silicon.

    Attributes:
        name: as it is shown.
        loads: the tenants.
        hold: how they are held.
        mps: whether they are clients of one MPS server.
        is_simulated: no real GPU has shown it yet.
        aims: of each tenant, in percent of what it does alone: silicon's, or the simulator's.
        points: how far each may be off.
    """

    name: str
    loads: tuple[Load, ...]
    hold: Hold
    aims: tuple[float, ...]
    points: float
    mps: bool = False
    is_simulated: bool = False

    @property
    def least_total(self) -> float | None:
        """The bar of what they get done together, where they fill the GPU."""
        if self.hold is not Hold.WINDOWS or any(load.client.sync for load in self.loads):
            return None
        return LEAST_THROUGH_MPS if self.mps else LEAST_TOTAL


def _alone(client: TenantClient, percent: int, off_by: float, points: float = SHARE_POINTS) -> Row:
    loads = (Load(client, percent),)
    return Row(f"{client.title}, {percent} %", loads, Hold.CAPS, (percent + off_by,), points)


def _pair(
    name: str,
    clients: tuple[TenantClient, ...],
    percents: tuple[int, ...],
    hold: Hold,
    aims: tuple[float, ...],
    *,
    mps: bool = False,
    threads: tuple[int, ...] = (),
    points: float = SPLIT_POINTS,
) -> Row:
    loads = tuple(
        Load(client, percent, threads[index] if threads else 0)
        for index, (client, percent) in enumerate(zip(clients, percents, strict=True))
    )
    how = f"{hold.value}, one MPS server" if mps else hold.value
    return Row(f"{name} ({how})", loads, hold, aims, points, mps)


def _polled(mode: ComputeMode, *aims: float) -> Row:
    loads = tuple(Load(POLLING, percent, mode=mode) for percent in (30, 70))
    name = f"30/70, both poll per 50 µs ({mode.word})"
    return Row(name, loads, Hold.WINDOWS, aims, SPLIT_POINTS, is_simulated=True)


def _whole(
    kernel_ns: int, form: str = "kernel", sync: int = 0, *, polls: bool = False
) -> TenantClient:
    """Returns a program whose kernels fill an H100: two blocks of 1024 threads on each SM."""
    return TenantClient(kernel_ns, form, sync, blocks=264, threads=1024, polls=polls)


LONG, MIDDLE, SHORT, TINY = (_whole(ns) for ns in (2 * MS, 200 * US, 20 * US, 5 * US))
LONGEST = _whole(20 * MS, sync=8)
#: As long in blocks of 100 us, which fill a part of the SMs evenly; two of 2 ms on each would not.
MANY = TenantClient(2 * MS, blocks=20 * 264, threads=1024, waves=20)
FEW = TenantClient(2 * MS, blocks=66, threads=1024)
COOPERATIVE = _whole(2 * MS, "cooperative")
GRAPH = _whole(50 * US, "graph")
MEMSET = TenantClient(1 * MS, "memset")
SIDE_BY_SIDE = TenantClient(200 * US, blocks=33, threads=1024, streams=4)
WAITING = _whole(50 * US, sync=1)
POLLING = _whole(50 * US, sync=1, polls=True)
WAITING_LONGER = _whole(300 * US, sync=1)

ROWS = (
    _alone(LONG, 10, -0.05),
    _alone(LONG, 30, -0.05),
    _alone(LONG, 50, -0.05),
    _alone(LONG, 80, -0.05),
    _alone(MIDDLE, 30, -0.06),
    _alone(MIDDLE, 50, -0.06),
    _alone(SHORT, 10, -0.18),
    _alone(SHORT, 30, -0.11),
    _alone(SHORT, 50, -0.09),
    _alone(SHORT, 80, -0.91),
    _alone(LONGEST, 50, 0.40),
    _alone(FEW, 50, -0.02),
    _alone(COOPERATIVE, 50, -0.08),
    _alone(GRAPH, 50, -0.03),
    _alone(MEMSET, 50, 0.5),
    _alone(TINY, 80, 0.95),
    _alone(SIDE_BY_SIDE, 50, 0.0, 1.0),  # 8.8 less there with the shim of 2026-11-22
    _pair("30/70", (LONG, LONG), (30, 70), Hold.BARE, (45.0, 45.0)),
    _pair("30/70", (LONG, LONG), (30, 70), Hold.WINDOWS, (28.5, 68.1)),
    _pair("10/90", (LONG, LONG), (10, 90), Hold.WINDOWS, (9.1, 88.3)),
    _pair("20/30/50", (LONG,) * 3, (20, 30, 50), Hold.WINDOWS, (17.7, 27.1, 46.7)),
    _pair("60/40, graphs and kernels", (GRAPH, LONG), (60, 40), Hold.WINDOWS, (56.4, 38.8)),
    _pair("50/50, both sync per 50 µs", (WAITING, WAITING), (50, 50), Hold.BARE, (16.0, 16.0)),
    _pair("50/50, both sync per 50 µs", (WAITING, WAITING), (50, 50), Hold.WINDOWS, (44.0, 45.0)),
    _pair(
        "50/50, 300 µs sync and a queue",
        (WAITING_LONGER, LONG),
        (50, 50),
        Hold.BARE,
        (11.0, 76.0),
        points=2.0,
    ),
    _pair(
        "50/50, 300 µs sync and a queue",
        (WAITING_LONGER, LONG),
        (50, 50),
        Hold.WINDOWS,
        (47.0, 50.0),
        points=2.0,
    ),
    _pair("30/70", (LONG, LONG), (30, 70), Hold.WINDOWS, (29.8, 69.8), mps=True),
    _pair("30/70, 200 µs", (MIDDLE, MIDDLE), (30, 70), Hold.WINDOWS, (29.9, 69.7), mps=True),
    _pair("50/50, few blocks", (FEW, FEW), (50, 50), Hold.WINDOWS, (49.9, 49.8), mps=True),
    _pair(
        "threads 30/70", (MANY, MANY), (30, 70), Hold.BARE, (29.4, 67.6), mps=True, threads=(30, 70)
    ),
    _polled(ComputeMode.STRICT, 25.3, 60.6),
    _polled(ComputeMode.ELASTIC, 25.3, 60.6),
)
#: Those of a quick run: the ends of each range, and every pair that
#: silicon has shown.
QUICK_ROWS = tuple(
    row
    for row in ROWS
    if not row.is_simulated
    and (
        len(row.loads) > 1
        or (row.loads[0].client, row.loads[0].core_percent)
        not in ((LONG, 10), (LONG, 30), (MIDDLE, 50), (SHORT, 10), (SHORT, 30))
    )
)
