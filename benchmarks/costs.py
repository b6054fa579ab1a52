"""What programs keep where the driver's calls cost something else than is thought.

Some figures of the calibration are derived: they were never measured on their own. So the bars of
`programs` are judged with half and with double of each, and once with events as another report has
them: 1.2 µs of the host each, whatever the thread did before. And they are judged where costs vary
by a seed.

What a light program keeps next to a heavy one is bounded by what changes of process cost
(blind_schedule.py). Where that leaves less than its bar, it is judged by that.
"""

import math
from collections.abc import Callable
from dataclasses import replace

from libvgpu.sim import find_profile
from libvgpu.sim.calibration import Calibration, call_names

from .blind_schedule import most_kept
from .figure import Figure, Measurement, Options
from .program_cases import TRAINING, Case, Goal
from .program_plans import Queue, plan_of
from .programs import LEAST_HEAVY_PERCENT, measure_cases
from .repeats import LABEL, US, say
from .stage import PROFILE

_EVENT_NS = 1_200
_SEEDS = (1, 2, 3)
_LIGHT = "decode"
CASES = (
    Case((TRAINING,), (90,), Goal.KEPT),
    Case(("gpt",), (90,), Goal.KEPT),
    Case(("decode",), (90,), Goal.KEPT),
    Case(("gpt", "decode"), (50, 50), Goal.KEPT),
    Case((_LIGHT, Queue(200 * US)), (30, 70), Goal.LIGHT),
)


def _with_cold_calls(calibration: Calibration, percent: int) -> Calibration:
    cold_ns = tuple(ns * percent // 100 for ns in calibration.cold_call_ns)
    return replace(calibration, cold_call_ns=cold_ns)


def _with_call(calibration: Calibration, **call_ns: int) -> Calibration:
    pairs = zip(call_names(), calibration.call_ns, strict=True)
    return replace(calibration, call_ns=tuple(call_ns.get(name, ns) for name, ns in pairs))


def _with_query(calibration: Calibration, percent: int) -> Calibration:
    usual_ns = dict(zip(call_names(), calibration.call_ns, strict=True))["cuEventQuery"]
    return _with_call(calibration, cuEventQuery=usual_ns * percent // 100)


#: A derived figure -> the calibration with so many percent of it.
_DERIVED: dict[str, Callable[[Calibration, int], Calibration]] = {
    "cold calls": _with_cold_calls,
    "cuEventQuery": _with_query,
    "preempt_ns": lambda each, percent: replace(each, preempt_ns=each.preempt_ns * percent // 100),
    "idle_switch_ns": lambda each, percent: replace(
        each, idle_switch_ns=each.idle_switch_ns * percent // 100
    ),
}


def variants(usual: Calibration) -> dict[str, Calibration]:
    """Returns calibrations by what is other in each."""
    reported = _with_call(
        _with_cold_calls(usual, 0), cuEventRecord=_EVENT_NS, cuEventQuery=_EVENT_NS
    )
    return {
        "as calibrated": usual,
        "events of 1.2 µs": reported,
        **{
            f"{name} x {percent / 100:g}": change(usual, percent)
            for name, change in _DERIVED.items()
            for percent in (50, 200)
        },
        **{f"varied by seed {seed}": usual.varied(seed) for seed in _SEEDS},
    }


def _most_light(calibration: Calibration) -> float:
    """Returns what the light program can keep, in whole percent."""
    plan = plan_of(_LIGHT)
    heavy_part = LEAST_HEAVY_PERCENT / 100
    step_ns = plan.trace.plain_step_ms * 1_000_000
    kept = most_kept(step_ns, plan.gpu_ns, heavy_part, calibration.idle_switch_ns)
    return math.floor(100 * kept) / 100


def _judged(row: Measurement, most_light: float) -> Measurement:
    if row.unit != "of solo" or row.least is None or row.least <= most_light:
        return row
    note = f"{row.note}; bursts that do not know its steps leave it {most_light} at most"
    return replace(row, least=most_light, note=note)


def measure(options: Options) -> list[Measurement]:
    """Takes the figure; a count takes only the first so many calibrations.

    Raises:
        VgpuError: there is no compiler, or a player fails without any shim.
    """
    profile = find_profile(PROFILE)
    found = []
    for title, calibration in list(variants(profile.calibration).items())[: options.count]:
        say(title)
        rows = measure_cases(CASES, options, replace(profile, calibration=calibration))
        most_light = _most_light(calibration)
        found += [replace(_judged(row, most_light), case=f"{title}: {row.case}") for row in rows]
    return found


FIGURE = Figure(
    name="costs",
    summary="what programs keep where the driver's derived costs are half, double or another's",
    label=LABEL,
    measure=measure,
    rounds=1,
    has_own_time=True,
)
