"""The lines of one screen: text and how it looks, cut to the screen's width. Pure.

A line is a list of spans. What is too wide is left out by columns, the least important first; the
names get what is left.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from libvgpu.counting import counted
from libvgpu.sizes import format_size

from ..fitting import beginning, padded
from ..fitting import width as text_width
from ..observe import LEFT_OVER
from ..render import SHORT_UUID
from .rates import KEPT, TopRow

_BARS = " ▁▂▃▄▅▆▇█"
_LEAST_NAME, _MOST_NAME = 12, 60
_MOST_NODE = 24
#: From which part of a limit on a value stands out.
_HIGH = 0.9


class Look(StrEnum):
    """How a span looks."""

    PLAIN = "plain"
    HEADING = "heading"
    CHOSEN = "chosen"
    HIGH = "high"
    FAINT = "faint"


class SortKey(StrEnum):
    """What rows are ordered by; the value is the key that a user types."""

    NAME = "n"
    GPU = "g"
    MEMORY = "m"
    SHARE = "s"
    HELD = "w"
    REFUSED = "r"


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of a line."""

    text: str
    look: Look = Look.PLAIN


Line = list[Span]


@dataclass(frozen=True, slots=True)
class TopGpu:
    """What is known of one GPU beforehand.

    Attributes:
        name: index, of a MIG device with its number behind a colon; "-" where it is not known.
        memory_bytes: 0 where it is not known.
        node: where it is, of several nodes; empty of one.
    """

    name: str
    product: str
    memory_bytes: int
    node: str = ""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the user chose to see.

    Attributes:
        is_reversed: the other way round than the key has it by itself.
        text: only rows that have it in name, GPU, family or state.
        first: row at the top.
    """

    sort: SortKey = SortKey.SHARE
    is_reversed: bool = False
    text: str = ""
    first: int = 0


@dataclass(frozen=True, slots=True)
class _Column:
    title: str
    width: int
    cell: Callable[[TopRow, Mapping[str, TopGpu]], Span]
    key: SortKey | None = None
    rank: int = 0  # what goes first where there is no room has the greatest
    right: bool = True


def sparkline(values: Sequence[float], width: int = KEPT) -> str:
    """Returns parts of 1 as a line of bars, the latest at the right."""
    last = values[-width:]
    steps = len(_BARS) - 1
    bars = (_BARS[min(steps, max(0, round(value * steps)))] for value in last)
    return "".join(bars).rjust(width)


def _memory(row: TopRow, gpus: Mapping[str, TopGpu]) -> Span:
    if not row.gpu_uuid:
        return Span("-")
    text = f"{format_size(row.memory_used_bytes)} / {format_size(row.memory_limit_bytes)}"
    is_high = row.memory_used_bytes >= _HIGH * row.memory_limit_bytes > 0
    return Span(text, Look.HIGH if is_high else Look.PLAIN)


def _share(row: TopRow, gpus: Mapping[str, TopGpu]) -> Span:
    if not row.gpu_uuid:
        return Span("-")
    mark = "~" if row.is_estimated else ""
    now = "-" if row.share_percent is None else f"{mark}{row.share_percent:.1f}"
    return Span(f"{now} / {row.core_percent or LEFT_OVER}")


def _gpu(row: TopRow, gpus: Mapping[str, TopGpu]) -> Span:
    known = gpus.get(row.gpu_uuid)
    return Span(known.name if known else row.gpu_uuid[:SHORT_UUID] or "-")


def _held(row: TopRow, gpus: Mapping[str, TopGpu]) -> Span:
    if not row.held_percent:
        return Span("0", Look.FAINT)
    return Span(f"{min(row.held_percent, 9999):.0f}%")


def _refused(row: TopRow, gpus: Mapping[str, TopGpu]) -> Span:
    if row.refused_lately:
        return Span(f"{row.refused} (+{row.refused_lately})", Look.HIGH)
    return Span(str(row.refused), Look.PLAIN if row.refused else Look.FAINT)


def _state(row: TopRow, gpus: Mapping[str, TopGpu]) -> Span:
    is_wrong = row.state in ("damaged", "busy", "abandoned")
    return Span(row.state, Look.HIGH if is_wrong else Look.PLAIN)


_COLUMNS = (
    _Column("GPU", 6, _gpu, SortKey.GPU, right=False),
    _Column("MEMORY", 19, _memory, SortKey.MEMORY),
    _Column("", KEPT, lambda row, gpus: Span(sparkline(row.memory_history)), rank=6),
    _Column("SHARE", 12, _share, SortKey.SHARE),
    _Column("", KEPT, lambda row, gpus: Span(sparkline(row.share_history)), rank=5),
    _Column("HELD", 5, _held, SortKey.HELD, rank=1),
    _Column("WINDOWS/s", 9, lambda row, gpus: Span(f"{row.windows_a_second:.0f}"), rank=8),
    _Column("REFUSED", 9, _refused, SortKey.REFUSED, rank=2),
    _Column("PROCS", 5, lambda row, gpus: Span(str(row.processes)), rank=7),
    _Column("MODE", 8, lambda row, gpus: Span(row.mode or "-"), rank=4, right=False),
    _Column("STATE", 9, _state, rank=3, right=False),
)


def ordered(rows: Sequence[TopRow], wanted: Wanted, gpus: Mapping[str, TopGpu]) -> list[TopRow]:
    """Returns the rows that are wanted, in their order."""
    text = wanted.text.lower()
    found = [row for row in rows if text in _searched(row, gpus)]
    orders: dict[SortKey, Callable[[TopRow], tuple[float | str, ...]]] = {
        SortKey.NAME: lambda row: (row.who,),
        SortKey.GPU: lambda row: (_gpu(row, gpus).text, row.who),
        SortKey.MEMORY: lambda row: (-row.memory_used_bytes, row.who),
        SortKey.SHARE: lambda row: (-(row.share_percent or 0.0), row.who),
        SortKey.HELD: lambda row: (-row.held_percent, row.who),
        SortKey.REFUSED: lambda row: (-row.refused_lately, -row.refused, row.who),
    }
    return sorted(found, key=orders[wanted.sort], reverse=wanted.is_reversed)


def _searched(row: TopRow, gpus: Mapping[str, TopGpu]) -> str:
    gpu = _gpu(row, gpus).text, row.gpu_uuid
    return " ".join((row.node, row.who, *gpu, row.family, row.state, row.allocation_id)).lower()


def gpu_lines(rows: Sequence[TopRow], gpus: Mapping[str, TopGpu]) -> list[Line]:
    """Returns a line for each GPU that is known or that a slice names."""
    uuids = dict.fromkeys((*gpus, *(row.gpu_uuid for row in rows if row.gpu_uuid)))
    lines = []
    node_width = max((len(gpu.node) for gpu in gpus.values()), default=0)
    for uuid in uuids:
        mine = [row for row in rows if row.gpu_uuid == uuid]
        gpu = gpus.get(uuid, TopGpu(uuid[:SHORT_UUID], "", 0))
        used = sum(row.memory_used_bytes for row in mine)
        given = sum(row.memory_limit_bytes for row in mine)
        core = sum(row.core_percent for row in mine)
        share = sum(row.share_percent or 0.0 for row in mine)
        total = format_size(gpu.memory_bytes) if gpu.memory_bytes else "?"
        modes = sorted({row.mode for row in mine if row.mode}) or ["-"]
        busy = sparkline([min(1.0, share / 100)], 1)
        lines.append(
            [
                Span(f"{gpu.node:<{node_width}} " if node_width else ""),
                Span(f"GPU {gpu.name:<4}"),
                Span(f" {gpu.product:<24.24}", Look.FAINT),
                Span(f" memory {format_size(used)} used, {format_size(given)} given of {total}"),
                Span(f"  core {core}% given, {share:.0f}% used {busy}"),
                Span(f"  {counted(len(mine), 'slice')}, {'+'.join(modes)}"),
            ]
        )
    return lines


def fitted(line: Line, width: int) -> Line:
    """Returns a line without what a screen has no room for: what stands back, then the end."""
    shown = list(line)
    while len(shown) > 1 and text_width(plain(shown)) > width:
        shown.remove(next((span for span in shown if span.look is Look.FAINT), shown[-1]))
    return shown


def table(
    rows: Sequence[TopRow],
    gpus: Mapping[str, TopGpu],
    wanted: Wanted,
    width: int,
    height: int | None = None,
) -> list[Line]:
    """Returns the heading and the rows.

    Args:
        rows: in their order.
        height: lines in all; None for all rows.
    """
    columns, name_width = _fitting(rows, width)
    heading = [Span("SLICE".ljust(name_width), _heading_look(SortKey.NAME, wanted))]
    for column in columns:
        look = _heading_look(column.key, wanted)
        heading += [Span(" "), Span(_padded(column.title, column), look)]
    shown = rows if height is None else rows[wanted.first : wanted.first + max(0, height - 1)]
    lines = [heading]
    for row in shown:
        line = [Span(padded(_cut(row.who, name_width), name_width))]
        for column in columns:
            span = column.cell(row, gpus)
            line += [Span(" "), Span(_padded(span.text, column), span.look)]
        lines.append(line)
    return lines


def plain(line: Line) -> str:
    """Returns a line without looks."""
    return "".join(span.text for span in line).rstrip()


def _fitting(rows: Sequence[TopRow], width: int) -> tuple[list[_Column], int]:
    """Returns the columns that there is room for, and how wide the names may be."""
    columns = [*_node_column(rows), *_COLUMNS]
    longest = max((text_width(row.who) for row in rows), default=_LEAST_NAME)
    for least in (min(longest, 24), _LEAST_NAME):
        while columns:
            left = width - sum(column.width + 1 for column in columns)
            if left >= least:
                return columns, max(_LEAST_NAME, min(left, longest, _MOST_NAME))
            last = max(columns, key=lambda column: column.rank)
            if not last.rank:
                break
            columns.remove(last)
    return columns, _LEAST_NAME


def _node_column(rows: Sequence[TopRow]) -> list[_Column]:
    """Returns the column of the nodes, where there are several."""
    widest = max((len(row.node) for row in rows), default=0)
    if not widest:
        return []
    width = min(_MOST_NODE, max(widest, len("NODE")))
    return [_Column("NODE", width, lambda row, gpus: Span(row.node), right=False)]


def _heading_look(key: SortKey | None, wanted: Wanted) -> Look:
    return Look.CHOSEN if key is wanted.sort else Look.HEADING


def _padded(text: str, column: _Column) -> str:
    return padded(_cut(text, column.width), column.width, column.right)


def _cut(text: str, width: int) -> str:
    """Returns a text in so many columns; what matters of a pod's name is often its end."""
    if text_width(text) <= width:
        return text
    begin = (width - 1) // 3
    end = beginning(text[::-1], width - 1 - begin)[::-1]
    return f"{beginning(text, begin)}…{end}"
