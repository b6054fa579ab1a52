"""Listings on stdout: a table for people or JSON for programs, from the same rows.

A row is a mapping with stable keys (each verb documents its own); a column says how one cell of
the table is made from a row. Text that tenants wrote (process names, for example) may hold
anything, so characters that a terminal would act on are replaced in tables; JSON escapes them.
"""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TextIO

Row = Mapping[str, object]

#: The key ``version`` of each object in JSON. `vgpuctl.output` says what it promises.
OUTPUT_VERSION = 1

#: A pipe has no width; rich would cut at 80 columns and split values that a script greps for.
_PIPE_WIDTH = 1000


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table.

    Attributes:
        title: its heading.
        cell: makes the text of one cell from a row.
        right: whether to align it right, as numbers are.
    """

    title: str
    cell: Callable[[Row], str]
    right: bool = False


def printable(text: str) -> str:
    """Returns ``text`` with everything that a terminal could act on replaced by ``?``."""
    return "".join(c if c.isprintable() else "?" for c in text)


def print_listing(
    rows: Sequence[Row],
    columns: Sequence[Column],
    output: str,
    empty: str,
    file: TextIO | None = None,
) -> None:
    """Prints rows as ``output`` says, ``table`` or ``json`` (a list, also when empty).

    Args:
        rows: what to list.
        columns: of the table; JSON shows the rows whole.
        output: ``table`` or ``json``.
        empty: said on stderr instead of a table without rows.
        file: stdout by default.
    """
    file = file or sys.stdout
    if output == "json":
        print(json.dumps([dict(row) for row in rows], indent=2), file=file)
        return
    if not rows:
        print(empty, file=sys.stderr)
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
    for column in columns:
        table.add_column(
            column.title, justify="right" if column.right else "left", no_wrap=not file.isatty()
        )
    for row in rows:
        table.add_row(*(Text(printable(column.cell(row))) for column in columns))
    console = Console(file=file, highlight=False, width=None if file.isatty() else _PIPE_WIDTH)
    console.print(table)


def seconds(duration_ns: int) -> float:
    """Returns nanoseconds as seconds, as JSON shows them."""
    return round(duration_ns / 1e9, 6)


def format_seconds(value: object) -> str:
    """Returns seconds for a table: ``0``, ``12.3s``, ``4m05s`` or ``3h02m``."""
    assert isinstance(value, int | float)
    if value == 0:
        return "0"
    if value < 60:
        return f"{value:.1f}s" if value >= 0.05 else f"{value * 1e3:.1f}ms"
    minutes, rest = divmod(int(value), 60)
    if minutes < 60:
        return f"{minutes}m{rest:02d}s"
    return f"{minutes // 60}h{minutes % 60:02d}m"
