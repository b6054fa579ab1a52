"""How soon a change of shares holds, and what the shim costs a job that nobody holds back.

*Response* looks at the books 50 ms after something changed and 200 ms later. *Slower* compares a
job that keeps the GPU busy with the same without any shim, in the same round; a share of 100 % is
not capped, so that what is measured is the cost of looking.
"""

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from libvgpu.artifacts import shim_path
from libvgpu.errors import VgpuError
from libvgpu.limits import ComputeMode

from .figure import Measurement, Options
from .repeats import MS, OURS, START_SECONDS, US, Lengths, judged_errors, lengths, no_value, say
from .stage import Stage, open_stage
from .tenant_programs import TenantClient, TenantProgram, shares

_RESPONSE_DELAY_SECONDS = 0.05
_RESPONSE_SECONDS = 0.2
_RESPONSE_WARM_UP_SECONDS = 1.5
_RESPONSE_POINTS = 5.0
_ELASTIC_LEAST_PERCENT = 99.0
ONE_MS = TenantClient(1 * MS)
#: A job that keeps the GPU busy and looks at a result every 10 ms.
JOB = TenantClient(100 * US, sync=100)


def share_after(
    stage: Stage,
    preload: Path,
    tenants: Sequence[TenantProgram],
    change: str,
    warm_up_seconds: float = _RESPONSE_WARM_UP_SECONDS,
) -> float:
    """Returns a tenant's share soon after a change.

    Args:
        stage: where.
        preload: with which library.
        tenants: the first one works before the change.
        change: ``limit``: its share is 20 % from now on, and is looked at; ``wake``: the second
            tenant begins, and is looked at.
        warm_up_seconds: how long the first one works before.
    """
    with stage.open(tenants, preload) as running:
        running.go(0)
        time.sleep(warm_up_seconds)
        if change == "limit":
            running.change(0, _LOWERED_PERCENT)
        else:
            running.go(1)
        time.sleep(_RESPONSE_DELAY_SECONDS)
        first = running.look()
        time.sleep(_RESPONSE_SECONDS)
        return shares(first, running.look())[-1]


_LOWERED_PERCENT = 20
_WAKING = tuple(TenantProgram(ONE_MS, 50, ComputeMode.ELASTIC) for _ in range(2))
#: title -> tenants, kind of change, expected percentage.
RESPONSES: Mapping[str, tuple[tuple[TenantProgram, ...], str, float]] = {
    "limit changed from 80 to 20 %": ((TenantProgram(ONE_MS, 80),), "limit", _LOWERED_PERCENT),
    "neighbour of 50 % wakes": (_WAKING, "wake", 50.0),
}
_RESPONSE_QUANTITY = "share, 200 ms from 50 ms after it"

_ALONE = TenantProgram(ONE_MS, 30, ComputeMode.ELASTIC)
_ALONE_TITLE = "elastic 30 % alone"
#: title -> the job's tenant, most percent slower.
OVERHEADS: Mapping[str, tuple[TenantProgram, float]] = {
    "GPU-bound job, uncapped": (TenantProgram(JOB, 100, ComputeMode.OFF), 0.2),
    "GPU-bound job, capped at 100 %": (TenantProgram(JOB, 100), 0.5),
}


def slower_percent(share_percent: float, alone_percent: float) -> float:
    """Returns by how much longer the same work takes, in percent of the time alone."""
    return 100 * (alone_percent / share_percent - 1) if share_percent else float("inf")


@dataclass
class Samples:
    """The repeats of one number; a failure ends them."""

    case: str
    quantity: str
    unit: str
    expected: float | None = None
    most: float | None = None
    least: float | None = None
    failure: str = ""

    def __post_init__(self) -> None:
        self.values: list[float] = []

    def add(self, sample: Callable[[], float]) -> None:
        """Takes one sample, or keeps why there is none."""
        if self.failure:
            return
        try:
            value = sample()
        except VgpuError as error:
            self.failure = error.message
            return
        self.values.append(value)

    def summarise(self) -> list[Measurement]:
        """Returns the measurements: errors where a value is expected, else worst or mean."""
        if self.failure:
            return [no_value(self.case, OURS, self.quantity, self.unit, self.failure)]
        if self.expected is not None:
            assert self.most is not None
            return judged_errors(
                self.case, OURS, self.quantity, self.values, self.expected, self.most
            )
        told = ", ".join(f"{value:.3f}" for value in self.values)
        note = f"repeats {told}"
        value = min(self.values) if self.least is not None else statistics.mean(self.values)
        return [Measurement(self.case, OURS, self.quantity, self.unit, round(value, 3), note=note,
                            least=self.least, most=self.most)]  # fmt: skip


def _responses(stage: Stage, long: Lengths) -> Iterator[tuple[Samples, Callable[[], None]]]:
    """Yields each number of the responses with what takes one sample of it."""
    ours = shim_path()
    for title, (tenants, change, expected) in RESPONSES.items():
        samples = Samples(title, _RESPONSE_QUANTITY, "%", expected, _RESPONSE_POINTS)

        def respond(
            kept: Samples = samples,
            tenants: Sequence[TenantProgram] = tenants,
            change: str = change,
        ) -> None:
            kept.add(lambda: share_after(stage, ours, tenants, change))

        yield samples, respond

    alone = Samples(_ALONE_TITLE, "share, worst", "%", least=_ELASTIC_LEAST_PERCENT)

    def use_all() -> None:
        alone.add(lambda: _share(stage, ours, _ALONE, long))

    yield alone, use_all


def _share(stage: Stage, preload: Path | None, tenant: TenantProgram, long: Lengths) -> float:
    window = stage.measure([tenant], preload, long.warm_up_seconds, long.window_seconds)
    return window.shares[0]


def _overheads(stage: Stage, long: Lengths, kept: Mapping[str, Samples]) -> None:
    """Takes one round of the overheads: the job without a shim, and in each way with it."""
    alone = stage.alone(JOB, long.warm_up_seconds, long.window_seconds)
    for title, (tenant, _) in OVERHEADS.items():

        def slower(tenant: TenantProgram = tenant) -> float:
            return slower_percent(_share(stage, shim_path(), tenant, long), alone)

        kept[title].add(slower)


def planned_response_seconds(long: Lengths) -> float:
    """Returns how long one round takes."""
    window = long.window_seconds + long.warm_up_seconds + START_SECONDS
    response = _RESPONSE_WARM_UP_SECONDS + _RESPONSE_DELAY_SECONDS + _RESPONSE_SECONDS
    windows = 1 + 1 + len(OVERHEADS)  # elastic alone; the job without a shim
    return windows * window + len(RESPONSES) * (response + START_SECONDS)


def measure_responses(options: Options) -> list[Measurement]:
    """Measures how soon a change holds, and what the shim costs.

    Raises:
        VgpuError: there is no compiler, or the job fails without any shim.
    """
    long = lengths(options)
    slowed = {
        title: Samples(title, "slower, mean", "%", most=most)
        for title, (_, most) in OVERHEADS.items()
    }
    with open_stage() as stage:
        responses = list(_responses(stage, long))
        for number in range(options.rounds):
            say(f"round {number + 1} of {options.rounds}: responses and overheads")
            for _, sample in responses:
                sample()
            _overheads(stage, long, slowed)
    everything = [*(samples for samples, _ in responses), *slowed.values()]
    return [measurement for samples in everything for measurement in samples.summarise()]
