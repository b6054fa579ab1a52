"""What a figure is, and how what it measured is shown and kept.

A figure is a module with a `Figure`. It measures everything it compares in the same run, so that
figures are differences or ratios of one machine at one time, never numbers to hold against those
of another day.
"""

import os
import platform
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from libvgpu.json_rows import to_rows
from libvgpu.sizes import format_size


@dataclass(frozen=True, slots=True)
class Options:
    """What ``benchmarks run`` was asked for.

    Attributes:
        rival: another preload library to measure in the same run, or None.
        rounds: how often each measurement is repeated, interleaved with the others.
        seconds: how long a figure that lasts is taken; None: its own length.
        count: how many of what a figure counts; None: its own number.
        plot: the directory for pictures of what a figure can draw; None: none are drawn.
        simulate: the profile of a simulated GPU, where a figure can be taken on a real one too.
        quick: shorter windows and fewer rows.
        seed: of what a figure does by chance; None: a new one, which it prints.
    """

    rival: Path | None
    rounds: int
    seconds: float | None = None
    count: int | None = None
    plot: Path | None = None
    simulate: str | None = None
    quick: bool = False
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class Measurement:
    """One number with its spread.

    Attributes:
        case: what was done.
        subject: with what: ``libvgpu``, the name of a rival, or ``none``.
        quantity: what the number is, for example ``added time``.
        unit: for example ``ns/call``.
        value: the median over the rounds, or None where it could not be measured.
        low: the lower quartile.
        high: the upper quartile.
        note: why there is no value, or what to know about it.
        needs_tool: a tool that is not there would have measured it, so its lack is no failure.
        least: the bar, where the value must not be smaller.
        most: the bar, where the value must not be larger.
        silicon: what a real GPU showed, where it is to be reproduced.
        simulated: what the simulated GPU is to give, where no real one has shown anything.
        tolerance: how far from one of these the value may be.
        history: what an earlier build reached on a real GPU; it is told, and is no bar.
    """

    case: str
    subject: str
    quantity: str
    unit: str
    value: float | None
    low: float | None = None
    high: float | None = None
    note: str = ""
    needs_tool: bool = False
    least: float | None = None
    most: float | None = None
    silicon: float | None = None
    simulated: float | None = None
    tolerance: float = 0.0
    history: float | None = None


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure.

    Attributes:
        name: as typed.
        summary: one line for the list.
        label: where the numbers come from; shown wherever they are.
        measure: takes the measurements.
        rounds: how often each measurement is repeated unless asked otherwise.
        has_own_time: it is taken in a time of its own (`own_time`), the same on every machine.
        must_hold: a bar that is missed is a failure.
    """

    name: str
    summary: str
    label: str
    measure: Callable[[Options], Sequence[Measurement]]
    rounds: int = 15
    has_own_time: bool = False
    must_hold: bool = False


def describe_bar(measurement: Measurement) -> str:
    """Returns the bar of a measurement as a sign and a number, empty where it has none."""
    if measurement.silicon is not None:
        return f"{measurement.silicon:g} ± {measurement.tolerance:g}"
    if measurement.simulated is not None:
        return f"simulated {measurement.simulated:g} ± {measurement.tolerance:g}"
    if measurement.least is not None and measurement.most is not None:
        return f"{measurement.least:g} to {measurement.most:g}"
    if measurement.most is not None:
        return f"≤ {measurement.most:g}"
    return f"≥ {measurement.least:g}" if measurement.least is not None else ""


def describe_aim(measurement: Measurement) -> str:
    """Returns the bar, and what an earlier build reached."""
    then = "" if measurement.history is None else f"(earlier shim {measurement.history:g})"
    return " ".join(filter(None, (describe_bar(measurement), then)))


def is_missed(measurement: Measurement) -> bool:
    """Returns whether there is a bar that the value is beyond; no value is beyond every bar."""
    if measurement.value is None:
        return bool(describe_bar(measurement))
    for aim in (measurement.silicon, measurement.simulated):
        if aim is not None:
            return abs(measurement.value - aim) > measurement.tolerance
    too_large = measurement.most is not None and measurement.value > measurement.most
    return too_large or (measurement.least is not None and measurement.value < measurement.least)


def judge(measurements: Sequence[Measurement]) -> list[str]:
    """Returns a sentence for each bar that was missed."""
    sentences = []
    for each in measurements:
        if is_missed(each):
            value = "not measured" if each.value is None else f"{each.value:g} {each.unit}"
            where = f"{each.case} with {each.subject}: {each.quantity}"
            why = f" ({each.note})" if each.note else ""
            bar = describe_bar(each)
            what = f"must be {bar}" if each.silicon is None else f"on silicon it is {bar}"
            if each.simulated is not None:
                what = f"{bar} was expected"
            sentences.append(f"missed: {where} is {value}, {what}{why}")
    return sentences


def spread(
    case: str, subject: str, quantity: str, unit: str, samples: Sequence[float], note: str = ""
) -> Measurement:
    """Returns samples as one measurement: median and quartiles."""
    low, middle, high = (
        statistics.quantiles(samples, n=4, method="inclusive")
        if len(samples) > 1
        else (samples[0],) * 3
    )
    return Measurement(
        case, subject, quantity, unit, round(middle, 3), round(low, 3), round(high, 3), note
    )


def machine() -> dict[str, object]:
    """Returns what the numbers depend on besides the code."""
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    model = "unknown"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "memory": format_size(memory_bytes),
        "kernel": platform.release(),
        "libc": " ".join(platform.libc_ver()),
    }


def to_json(results: Sequence[tuple[Figure, Sequence[Measurement]]]) -> str:
    """Returns results as JSON: the machine, then each figure with its label and numbers.

    A number is a row on a line of its own, without what is as `Measurement` has it by default.
    """
    figures = [
        {"figure": f.name, "label": f.label, "measurements": [_row(m) for m in measurements]}
        for f, measurements in results
    ]
    return to_rows({"machine": machine(), "figures": figures})


def _row(measurement: Measurement) -> dict[str, object]:
    usual = {each.name: each.default for each in fields(Measurement)}
    return {key: value for key, value in asdict(measurement).items() if value != usual[key]}
