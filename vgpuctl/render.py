"""Listings on stdout: a table for people or JSON for programs, from the same rows.

A row is a mapping with stable keys (each verb documents its own); a column says how one cell of
the table is made from a row. Text that tenants wrote (process names, for example) may hold
anything, so characters that a terminal would act on are replaced in tables; JSON escapes them.
"""

import json
import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TextIO

from libvgpu.sizes import format_size

from .fitting import GAP, fitting, padded, shortened, width

Row = Mapping[str, object]

#: The key ``version`` of each object in JSON. `vgpuctl.output` says what it promises.
OUTPUT_VERSION: Final = 1

#: Of a UUID: "GPU-" and the first group, enough to tell the GPUs of a node apart.
SHORT_UUID = 12


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table.

    Attributes:
        title: its heading.
        cell: makes the text of one cell from a row.
        right: whether to align it right, as numbers are.
        rank: 0 is always shown; of the others a terminal that is too narrow for all keeps those of
            the lowest ranks (`fitting`).
        narrow: makes the text of a cell where the table would else be wider than the terminal.
        is_name: whether its text may be shortened there. What is whole longest is the rightmost.
    """

    title: str
    cell: Callable[[Row], str]
    right: bool = False
    rank: int = 0
    narrow: Callable[[Row], str] | None = None
    is_name: bool = False


def size_column(title: str, key: str, rank: int = 0) -> Column:
    """Returns a column of bytes; what is not known is ``-``."""

    def cell(row: Row) -> str:
        value = row[key]
        return format_size(value) if isinstance(value, int) else "-"

    return Column(title, cell, True, rank)


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
    titles = [column.title for column in columns]
    cells = [[printable(column.cell(row)) for column in columns] for row in rows]
    is_right = [column.right for column in columns]
    lines = plain_lines([titles, *cells], is_right)
    # A pipe has no width: what a script greps for is neither cut nor broken.
    if not file.isatty():
        print("\n".join(lines), file=file)
        return
    most = shutil.get_terminal_size().columns
    if max(map(width, lines)) > most:
        fitted = _fitted_lines(rows, columns, most)
        if fitted is None:
            _print_broken(titles, cells, is_right, file)
            return
        lines = fitted
    print("\n".join([_bold(lines[0]), *lines[1:]]), file=file)


def _fitted_lines(rows: Sequence[Row], columns: Sequence[Column], most: int) -> list[str] | None:
    """Returns the table with what a terminal of so many columns has room for.

    None for a table whose columns are all always shown, and whose cells are texts to read.
    """
    if not any(column.rank for column in columns):
        return None
    cells = [[printable((column.narrow or column.cell)(row)) for column in columns] for row in rows]
    table = [[column.title for column in columns], *cells]
    names = [n for n, column in enumerate(columns) if column.is_name][::-1]
    widths = [max(map(width, column)) for column in zip(*table, strict=True)]
    shown, most_of = fitting(widths, [column.rank for column in columns], names, most)
    fitted = [
        [shortened(row[n], most_of[n]) if n in most_of else row[n] for n in shown] for row in table
    ]
    return plain_lines(fitted, [columns[n].right for n in shown])


def say(sentence: str) -> None:
    """Prints a sentence about a listing on stderr; a terminal gets lines that end with a word."""
    if sys.stderr.isatty():
        most = shutil.get_terminal_size().columns
        sentence = textwrap.fill(sentence, most, break_long_words=False, break_on_hyphens=False)
    print(sentence, file=sys.stderr)


def plain_lines(table: Sequence[Sequence[str]], is_right: Sequence[bool]) -> list[str]:
    """Returns the rows of a table as lines, each column as wide as its widest cell."""
    widths = [max(map(width, column)) for column in zip(*table, strict=True)]
    lines = []
    for row in table:
        cells = map(padded, row, widths, is_right)
        lines.append(GAP.join(cells).rstrip())
    return lines


def _is_plain() -> bool:
    """Returns whether the terminal shows text alone, or shall."""
    return os.environ.get("TERM") in (None, "", "dumb") or "NO_COLOR" in os.environ


def _bold(line: str) -> str:
    """Returns a heading as the terminal shows it."""
    return line if _is_plain() else f"\x1b[1m{line}\x1b[0m"


def _print_broken(
    titles: Sequence[str], cells: Sequence[Sequence[str]], is_right: Sequence[bool], file: TextIO
) -> None:
    """Prints a table that is wider than the terminal: cells are broken over lines.

    Only then rich is imported, which takes as long as all the rest of `ps`.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
    for title, right in zip(titles, is_right, strict=True):
        table.add_column(title, justify="right" if right else "left", overflow="fold")
    for row in cells:
        table.add_row(*map(Text, row))
    console = Console(file=file, highlight=False, color_system=None if _is_plain() else "auto")
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
