"""What an H100 showed on 2026-11-22 with the shim of that day, as rows to measure again.

Driver 580.159.04, default compute mode, one GPU to itself; "%" is of what the same program gets
done alone and without a shim. A shim that has been improved since may leave a row for good reason:
then the next real GPU gives it a new value.
"""

from dataclasses import dataclass

from ..tenant_programs import TenantClient
from .bench import Load
from .holding import Hold

US, MS = 1_000, 1_000_000
#: Of one tenant's share, of each of several, and of what they get done together.
SHARE_POINTS, SPLIT_POINTS, TOTAL_POINTS = 0.5, 1.0, 2.0


@dataclass(frozen=True, slots=True)
class Row:
    """Tenants next to each other, and what each got done on silicon.

    Attributes:
        name: as it is shown.
        loads: the tenants.
        hold: how they are held.
        mps: whether they are clients of one MPS server.
        silicon: of each tenant, in percent of what it does alone.
        points: how far each may be off.
    """

    name: str
    loads: tuple[Load, ...]
    hold: Hold
    silicon: tuple[float, ...]
    points: float
    mps: bool = False


def _alone(client: TenantClient, percent: int, off_by: float, points: float = SHARE_POINTS) -> Row:
    loads = (Load(client, percent),)
    return Row(f"{client.title}, {percent} %", loads, Hold.CAPS, (percent + off_by,), points)


def _pair(
    name: str,
    clients: tuple[TenantClient, ...],
    percents: tuple[int, ...],
    hold: Hold,
    silicon: tuple[float, ...],
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
    return Row(f"{name} ({how})", loads, hold, silicon, points, mps)


def _whole(kernel_ns: int, form: str = "kernel", sync: int = 0) -> TenantClient:
    """Returns a program whose kernels fill an H100: two blocks of 1024 threads on each SM."""
    return TenantClient(kernel_ns, form, sync, blocks=264, threads=1024)


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
)
#: Those of a quick run: the ends of each range, and every pair.
QUICK_ROWS = tuple(
    row
    for row in ROWS
    if len(row.loads) > 1
    or (row.loads[0].client, row.loads[0].core_percent)
    not in ((LONG, 10), (LONG, 30), (MIDDLE, 50), (SHORT, 10), (SHORT, 30))
)
