"""What was measured as a table in Markdown, next to what an earlier run measured.

So the results of a real GPU stand next to those of the simulated one, and what differs is told.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from libvgpu.errors import UsageError

from .figure import Measurement, describe_aim, is_missed

#: A case and a quantity -> the value of an earlier run.
Earlier = Mapping[tuple[str, str], float | None]


def read_earlier(path: Path) -> tuple[str, Earlier]:
    """Returns whom an earlier run measured, and its values, out of what ``--json`` wrote.

    Raises:
        UsageError: the file cannot be read, or is none of ``--json``.
    """
    try:
        figures = json.loads(path.read_text())["figures"]
        rows = [row for figure in figures for row in figure["measurements"]]
        values = {(row["case"], row["quantity"]): row["value"] for row in rows}
        return rows[0]["subject"], values
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise UsageError(
            f"{path} holds no results of --json: {type(error).__name__} {error}"
        ) from None


def table(measurements: Sequence[Measurement], before: tuple[str, Earlier] | None) -> str:
    """Returns the rows as a table; bars and values of silicon have a column of their own."""
    subjects = " and ".join(dict.fromkeys(each.subject for each in measurements))
    earlier = [before[0]] if before else []
    head = ["Case", "Quantity", "Unit", subjects, *earlier, "silicon or bar", ""]
    lines = [_line(head), _line(["---"] * len(head))]
    for each in measurements:
        value = f"{each.value:g}" if each.value is not None else f"not measured: {each.note}"
        then = []
        if before:
            found = before[1].get((each.case, each.quantity))
            then = ["-" if found is None else f"{found:g}"]
        word = "differs" if is_missed(each) else ""
        lines.append(
            _line([each.case, each.quantity, each.unit, value, *then, describe_aim(each), word])
        )
    return "\n".join(lines) + "\n"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
