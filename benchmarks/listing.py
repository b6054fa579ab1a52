"""Measurements as a table for a terminal, made without any package."""

from collections.abc import Sequence

from .figure import Measurement, describe_aim, is_missed


def _number(measurement: Measurement) -> str:
    value, low, high = measurement.value, measurement.low, measurement.high
    if value is None:
        return f"not measured: {measurement.note}"
    return f"{value:g}" if low == high else f"{value:g}  ({low:g} to {high:g})"


def _bar(measurement: Measurement) -> str:
    bar = describe_aim(measurement)
    return f"{bar} MISSED" if is_missed(measurement) else bar


def listing(measurements: Sequence[Measurement]) -> str:
    """Returns the lines of a table; bars have a column where there are any."""
    if not measurements:
        return "nothing measured\n"
    rows = [["CASE", "WITH", "QUANTITY", "MEDIAN (QUARTILES)", "UNIT", "BAR"]]
    rows += [
        [each.case, each.subject, each.quantity, _number(each), each.unit, _bar(each)]
        for each in measurements
    ]
    if not any(row[-1] for row in rows[1:]):
        rows = [row[:-1] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    )
    return "".join(line.rstrip() + "\n" for line in lines)
