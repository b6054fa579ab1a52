"""Whether racing processes ever get a byte too much, or are refused a byte that there was.

64 processes take and give memory of every kind in one slice that is too small for them; but not
code, whose load is measured, so that one that does not fit is over the limit until it is undone.
The peak of the simulated GPU tells whether the limit was ever exceeded; about once a second they
stand still, and the rest of the limit must be there to the last byte.
"""

import time

from .figure import Figure, Measurement, Options
from .race import MIB, Race, RaceReading, open_race

PROCESSES = 64
SECONDS = 60.0
LIMIT_BYTES = 512 * MIB
BETWEEN_LOOKS_SECONDS = 1.0
LEAST_LOOKS = 2  # however slow the machine is
CASE = f"{PROCESSES} processes, every kind of memory but code"


def _count(quantity: str, unit: str, value: float) -> Measurement:
    return Measurement(CASE, "libvgpu", quantity, unit, value, value, value)


def measure(options: Options) -> list[Measurement]:
    """Takes the figure.

    Raises:
        VgpuError: there is no compiler, or a client fails or hangs.
    """
    looks: list[RaceReading] = []
    with open_race(LIMIT_BYTES) as race:
        for seat in range(PROCESSES):
            race.start(seat)
        end = time.monotonic() + (options.seconds or SECONDS)
        while time.monotonic() < end or len(looks) < LEAST_LOOKS:
            time.sleep(min(BETWEEN_LOOKS_SECONDS, (options.seconds or SECONDS) / 3))
            race.check()
            looks.append(race.look())
        over_bytes = max(0, race.machine.books()[0].memory_peak_bytes - LIMIT_BYTES)
        steps, granted, refused = _sums(race)
        race.stop()
    slowest_ns = max((look.slowest_ns for look in looks), default=0)
    wrong_bytes = max((abs(look.ledger_bytes - look.device_bytes) for look in looks), default=0)
    return [
        _count("most over the limit", "bytes", over_bytes),
        _count("false refusals", "", sum(look.exact_refused for look in looks)),
        _count("grants beyond the limit", "", sum(look.beyond_granted for look in looks)),
        _count("ledger against GPU, at rest", "bytes", wrong_bytes),
        _count("times looked at rest", "", len(looks)),
        _count("steps", "", steps),
        _count("granted", "", granted),
        _count("refused", "", refused),
        _count("slowest step", "ms", slowest_ns / 1e6),
    ]


def _sums(race: Race) -> tuple[int, int, int]:
    seats = [race.counts(seat) for seat in range(PROCESSES)]
    return sum(s[0] for s in seats), sum(s[1] for s in seats), sum(s[2] for s in seats)


FIGURE = Figure(
    name="memory-race",
    summary="whether racing processes ever exceed their limit, or are refused what there is",
    label="simulated GPU",
    measure=measure,
)
