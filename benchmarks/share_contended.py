"""How tenants of one GPU divide it: splits, total work, response, and what the shim costs a job.

*Split* is a tenant's part of the device time that all tenants had; *total work* is the sum over
the tenants of what each had divided by what its client takes alone. Each client is measured alone
once, without any shim. What share_response.py measures belongs to this figure too.

The windows of one round are those of all cells, so that slow drifts touch each of them.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from libvgpu.limits import ComputeMode

from .figure import Figure, Measurement, Options
from .plot import draw
from .repeats import (
    LABEL,
    MS,
    ROUNDS,
    START_SECONDS,
    US,
    Lengths,
    Results,
    curves_of,
    judged_errors,
    lengths,
    measure_alone,
    no_value,
    say,
    subjects_of,
    take,
)
from .share_response import ONE_MS, measure_responses, planned_response_seconds
from .stage import open_stage
from .tenant_programs import TenantClient, TenantProgram

_TOTAL = 0.985
_REST_POINTS = 0.5

SHORT = TenantClient(20 * US)
LONG = TenantClient(20 * MS)
GRAPH = TenantClient(20 * US, "graph")
WAITING = TenantClient(50 * US, sync=1)


@dataclass(frozen=True, slots=True)
class Contest:
    """Tenants side by side.

    Attributes:
        title: how it is shown.
        tenants: their percentages are the split that is expected.
        most_points: the bar of the split.
        least_total: the bar of the total work.
        rest: the last tenant is elastic and is to have what the strict ones leave; shares of the
            device are judged then, not the split.
    """

    title: str
    tenants: tuple[TenantProgram, ...]
    most_points: float
    least_total: float = _TOTAL
    rest: bool = False


def _contest(
    title: str,
    clients: Sequence[TenantClient],
    percents: Sequence[int],
    most_points: float,
    least_total: float = _TOTAL,
) -> Contest:
    pairs = zip(clients, percents, strict=True)
    tenants = tuple(TenantProgram(client, percent) for client, percent in pairs)
    return Contest(title, tenants, most_points, least_total)


CONTESTS = (
    _contest("30/70, equal", (ONE_MS, ONE_MS), (30, 70), 0.4),
    _contest("10/90, equal", (ONE_MS, ONE_MS), (10, 90), 0.4),
    _contest("50/50, equal", (ONE_MS, ONE_MS), (50, 50), 0.4),
    _contest("50/50, 20 µs and 20 ms", (SHORT, LONG), (50, 50), 0.6),
    _contest("60/40, graphs and kernels", (GRAPH, ONE_MS), (60, 40), 0.6),
    _contest("20/30/50, equal", (ONE_MS, ONE_MS, ONE_MS), (20, 30, 50), 0.4),
    _contest("50/50, both sync after 50 µs", (WAITING, WAITING), (50, 50), 1.0, 0.95),
    Contest(
        "strict 30 beside elastic 30",
        (TenantProgram(ONE_MS, 30), TenantProgram(ONE_MS, 30, ComputeMode.ELASTIC)),
        _REST_POINTS,
        rest=True,
    ),
)


def expected_of(contest: Contest, alone: Mapping[TenantClient, float]) -> list[float]:
    """Returns what each tenant should have: percent of the split, or of the device with `rest`."""
    percents = [float(tenant.core_percent) for tenant in contest.tenants]
    if contest.rest:
        strict = [min(p, alone[t.client]) for p, t in zip(percents, contest.tenants, strict=True)]
        return [*strict[:-1], alone[contest.tenants[-1].client] - sum(strict[:-1])]
    return [100 * percent / sum(percents) for percent in percents]


def summarise(
    contest: Contest, subject: str, results: Results, alone: Mapping[TenantClient, float]
) -> list[Measurement]:
    """Returns the measurements of one contest; without a device, so that made-up windows do too.

    Args:
        contest: what was measured.
        subject: with which library.
        results: the repeats.
        alone: what each client takes of the device without any shim, in percent.
    """
    what = "share" if contest.rest else "split"
    if results.failure:
        return [no_value(contest.title, subject, what, "%", results.failure)]
    found = []
    for index, expected in enumerate(expected_of(contest, alone)):
        values = []
        for window in results.windows:
            whole = 100.0 if contest.rest else sum(window.shares)
            # With nothing done at all there is no split, and every expectation is missed.
            values.append(100 * window.shares[index] / whole if whole else 0.0)
        tenant = contest.tenants[index]
        mode = f"{tenant.mode.word} {tenant.core_percent} %"
        case = f"{contest.title}: tenant {index + 1}, {mode}"
        found += judged_errors(case, subject, what, values, expected, contest.most_points)
    totals = [
        sum(
            share / alone[tenant.client]
            for share, tenant in zip(window.shares, contest.tenants, strict=True)
        )
        for window in results.windows
    ]
    note = f"mean {statistics.mean(totals):.4f}"
    found.append(
        Measurement(contest.title, subject, "total work, worst", "of alone", round(min(totals), 4),
                    note=note, least=contest.least_total)
    )  # fmt: skip
    return found


def planned_seconds(contests: Sequence[Contest], rounds: int, long: Lengths) -> float:
    """Returns how long the figure takes with our shim alone."""
    window = long.window_seconds + long.warm_up_seconds + START_SECONDS
    clients = {tenant.client for contest in contests for tenant in contest.tenants}
    of_contests = (len(clients) + rounds * len(contests)) * window
    return of_contests + rounds * planned_response_seconds(long)


def measure_contests(contests: Sequence[Contest], options: Options) -> list[Measurement]:
    """Measures some contests.

    Raises:
        VgpuError: there is no compiler, or a client fails without any shim.
    """
    long, subjects = lengths(options), subjects_of(options)
    kept = {(contest, subject): Results() for contest in contests for subject in subjects}
    with open_stage() as stage:
        clients = [tenant.client for contest in contests for tenant in contest.tenants]
        alone = measure_alone(stage, clients, long)
        for number in range(options.rounds):
            for (contest, subject), results in kept.items():
                say(f"round {number + 1} of {options.rounds}: {contest.title}, {subject}")
                take(
                    stage,
                    results,
                    contest.tenants,
                    subjects[subject],
                    long,
                    sampled=options.plot is not None,
                )
    found = []
    for (contest, subject), results in kept.items():
        found += summarise(contest, subject, results, alone)
        if options.plot is not None and results.windows:
            labels = [
                f"{tenant.core_percent} % {tenant.mode.word}, {tenant.client.title}"
                for tenant in contest.tenants
            ]
            curves = curves_of(results.windows, labels, expected_of(contest, alone))
            draw(options.plot, f"share-contended: {contest.title}, {subject}", LABEL, curves)
    return found


def measure(options: Options) -> list[Measurement]:
    """Takes the figure; a count measures only so many contests, and nothing else.

    Raises:
        VgpuError: there is no compiler, or a client fails without any shim.
    """
    found = measure_contests(CONTESTS[: options.count], options)
    return found if options.count is not None else found + measure_responses(options)


FIGURE = Figure(
    name="share-contended",
    summary="how tenants of one GPU divide it, how soon a change holds, and what the shim costs",
    label=LABEL,
    measure=measure,
    rounds=ROUNDS,
)
