"""Windows that are repeated and what comes of them: what both figures of shares have in common."""

import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from libvgpu.artifacts import shim_path
from libvgpu.errors import VgpuError

from .figure import Measurement, Options
from .plot import Curve
from .tenant_programs import TenantClient, TenantProgram, Window, shares

if TYPE_CHECKING:  # what needs no simulated GPU is used without its packages, too
    from .stage import Stage

LABEL = "simulated GPU"
OURS = "libvgpu"
US, MS = 1000, 1_000_000
#: A client's windows; starting and ending one costs about as much as it says here.
WINDOW_SECONDS = 10.0
WARM_UP_SECONDS = 2.0
START_SECONDS = 0.5
ROUNDS = 3
_LEAST_WARM_UP_SECONDS = 0.5
_LONG_KERNEL_NS = 100_000_000
_LONG_FACTOR = 6


@dataclass(frozen=True, slots=True)
class Lengths:
    """How long things are measured.

    Attributes:
        window_seconds: of kernels below 100 ms.
        warm_up_seconds: before each window.
    """

    window_seconds: float
    warm_up_seconds: float

    def of(self, client: TenantClient) -> float:
        """Returns the length of a capped window of this client."""
        is_long = client.kernel_ns >= _LONG_KERNEL_NS
        return self.window_seconds * (_LONG_FACTOR if is_long else 1)


def lengths(options: Options) -> Lengths:
    """Returns the lengths that were asked for; a shorter window has a shorter warm-up."""
    window = options.seconds or WINDOW_SECONDS
    warm_up = WARM_UP_SECONDS * min(1.0, window / WINDOW_SECONDS)
    return Lengths(window, max(_LEAST_WARM_UP_SECONDS, warm_up))


@dataclass
class Results:
    """What the rounds of one cell gave with one subject; a failure ends the cell."""

    windows: list[Window] = field(default_factory=list)
    failure: str = ""


def subjects_of(options: Options) -> dict[str, Path]:
    """Returns the preload libraries to measure, ours first."""
    subjects = {OURS: shim_path()}
    if options.rival is not None:
        name = options.rival.name
        subjects[name if name != "libvgpu.so" else "--shim"] = options.rival
    return subjects


def take(
    stage: "Stage",
    results: Results,
    tenants: Sequence[TenantProgram],
    preload: Path,
    long: Lengths,
    *,
    sampled: bool,
) -> None:
    """Measures one window and keeps it, or why there is none."""
    if results.failure:
        return
    seconds = max(long.of(tenant.client) for tenant in tenants)
    try:
        window = stage.measure(tenants, preload, long.warm_up_seconds, seconds, sampled=sampled)
    except VgpuError as error:
        results.failure = error.message
        return
    results.windows.append(window)


def measure_alone(
    stage: "Stage", clients: Sequence[TenantClient], long: Lengths
) -> dict[TenantClient, float]:
    """Returns what each client takes of the device alone, without any shim.

    Raises:
        VgpuError: one fails even so.
    """
    found = {}
    for client in dict.fromkeys(clients):
        say(f"alone: {client.title}")
        found[client] = stage.alone(client, long.warm_up_seconds, long.window_seconds)
    return found


def say(words: str) -> None:
    """Tells the one who waits what is being done."""
    print(f"  {words}", file=sys.stderr, flush=True)


def curves_of(
    windows: Sequence[Window], labels: Sequence[str], expected: Sequence[float | None]
) -> list[Curve]:
    """Returns the share over time of every tenant in every window."""
    curves = []
    for window in windows:
        begun_ns = window.looks[0].clock_ns
        pairs = list(zip(window.looks, window.looks[1:], strict=False))
        parts = [shares(first, last) for first, last in pairs if last.clock_ns > first.clock_ns]
        ends = tuple(
            (last.clock_ns - begun_ns) / 1e9
            for first, last in pairs
            if last.clock_ns > first.clock_ns
        )
        for tenant, label in enumerate(labels):
            of_tenant = tuple(part[tenant] for part in parts)
            curves.append(Curve(tenant, label, ends, of_tenant, expected[tenant]))
    return curves


def judged_errors(
    case: str,
    subject: str,
    what: str,
    values: Sequence[float],
    expected: float,
    most_points: float,
) -> list[Measurement]:
    """Returns mean, mean error and worst error of the repeats; the worst has to meet the bar."""
    errors = [abs(value - expected) for value in values]
    told = ", ".join(f"{value:.2f}" for value in values)
    words = f"expected {expected:.2f}, repeats {told}"
    return [
        Measurement(case, subject, f"{what}, mean", "%", round(statistics.mean(values), 3),
                    note=words),
        Measurement(case, subject, f"{what}, mean error", "points",
                    round(statistics.mean(errors), 3), note=words),
        Measurement(case, subject, f"{what}, worst error", "points", round(max(errors), 3),
                    note=words, most=most_points),
    ]  # fmt: skip


def no_value(case: str, subject: str, quantity: str, unit: str, why: str) -> Measurement:
    """Returns the measurement that could not be taken."""
    return Measurement(case, subject, quantity, unit, None, note=why)
