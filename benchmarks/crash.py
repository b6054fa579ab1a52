"""Whether processes that are killed at random points leave a byte charged, or anybody waiting.

16 processes take and give memory of every kind in one slice; again and again one of them is killed
and replaced. After every few kills the others stand still, and the ledger must say what the
simulated GPU says, to the byte. A wait of over a second counts where the machine itself did not
keep everybody waiting (heartbeat.py).
"""

import random
import time

from .figure import Figure, Measurement, Options
from .heartbeat import open_heartbeat
from .race import MIB, open_race

PROCESSES = 16
KILLS = 10_000
LIMIT_BYTES = 256 * MIB
KILLS_BETWEEN_LOOKS = 50
LONGEST_PAUSE_SECONDS = 0.004
HANG_NS = 1_000_000_000


def measure(options: Options) -> list[Measurement]:
    """Takes the figure.

    Raises:
        VgpuError: there is no compiler, or a client fails, or hangs for 30 s.
    """
    kills = options.count or KILLS
    chance = random.Random()
    leaked_bytes = free_bytes = false_refusals = beyond = hangs = 0
    slowest_ns = stalled_ns = 0
    with open_heartbeat() as heartbeat, open_race(LIMIT_BYTES) as race:
        for seat in range(PROCESSES):
            race.start(seat)
        for kill in range(1, kills + 1):
            time.sleep(chance.random() * LONGEST_PAUSE_SECONDS)
            race.check()
            seat = chance.randrange(PROCESSES)
            if seat in race.processes:
                race.kill(seat)
            race.start(seat)
            if kill % KILLS_BETWEEN_LOOKS and kill != kills:
                continue
            asked_ns = time.monotonic_ns()
            look = race.look()
            waits_ns = look.slowest_ns, time.monotonic_ns() - asked_ns
            stall_ns = heartbeat.longest_ns()
            leaked_bytes = max(leaked_bytes, look.ledger_bytes - look.device_bytes)
            free_bytes = max(free_bytes, look.device_bytes - look.ledger_bytes)
            false_refusals += look.exact_refused
            beyond += look.beyond_granted
            hangs += sum(wait_ns > HANG_NS + stall_ns for wait_ns in waits_ns)
            slowest_ns = max(slowest_ns, look.slowest_ns)
            stalled_ns = max(stalled_ns, stall_ns)
        race.stop()
    case = f"{kills} SIGKILLs among {PROCESSES} processes"
    found = [
        ("leaked", "bytes", leaked_bytes),
        ("held and not charged", "bytes", free_bytes),
        ("false refusals", "", false_refusals),
        ("grants beyond the limit", "", beyond),
        ("waits of over 1 s", "", hangs),
        ("slowest step", "ms", slowest_ns / 1e6),
        ("longest stall of the machine", "ms", stalled_ns / 1e6),
    ]
    return [
        Measurement(case, "libvgpu", quantity, unit, value, value, value)
        for quantity, unit, value in found
    ]


FIGURE = Figure(
    name="crash",
    summary="whether killed processes leave a byte charged, or anybody waiting",
    label="simulated GPU",
    measure=measure,
)
