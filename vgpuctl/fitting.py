"""Which columns of a table a terminal has room for. Pure.

Columns are taken in the order of their rank while there is room; what does not fit is left out
whole. One column, of names, may be shortened: the columns of rank 1 come before its full width,
all others after it. So a narrow terminal loses columns, and no row needs a second line.
"""

import unicodedata
from collections.abc import Sequence

#: Between two columns.
GAP = "  "

#: The least that is left of a name: as wide as the heading of `ps`.
_LEAST_NAME = 14

#: Rank of a column that is always shown, and of one that is worth more than a whole name.
ALWAYS, BEFORE_NAMES = 0, 1


def fitting(
    widths: Sequence[int], ranks: Sequence[int], name: int | None, most: int
) -> tuple[list[int], int] | None:
    """Returns which columns to show, and how wide the names may be; None where none will do.

    Args:
        widths: of each column, in columns of the terminal.
        ranks: of each column; the lower, the longer it stays.
        name: which column may be shortened, if any.
        most: the terminal's width.
    """
    least = 0 if name is None else min(widths[name], _LEAST_NAME)
    taken = dict.fromkeys((n for n, rank in enumerate(ranks) if rank == ALWAYS), 0)
    for number in taken:
        taken[number] = least if number == name else widths[number]

    def left() -> int:
        return most - sum(taken.values()) - len(GAP) * (len(taken) - 1)

    if left() < 0:
        return None
    by_rank = sorted((n for n in range(len(ranks)) if n not in taken), key=lambda n: ranks[n])
    for number in by_rank:
        if ranks[number] > BEFORE_NAMES and name is not None:
            taken[name] = min(widths[name], taken[name] + left())
        if left() >= widths[number] + len(GAP):
            taken[number] = widths[number]
    if name is None:
        return sorted(taken), 0
    return sorted(taken), min(widths[name], taken[name] + left())


def width(text: str) -> int:
    """Returns how many columns of a terminal a printable text takes."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(c) else 1 + (unicodedata.east_asian_width(c) in "WF")
        for c in text
    )


def shortened(text: str, most: int) -> str:
    """Returns a text in at most ``most`` columns, by whole words as long as one of them fits.

    Of a path, as ``namespace/pod/container`` is one, the end is kept, since it tells the most. Of a
    command the beginning is.
    """
    if width(text) <= most:
        return text
    if " " in text:
        begin = _beginning(text, most - 1)
        words = begin if text[len(begin)] == " " else begin.rpartition(" ")[0]
        return f"{words or begin}…"
    end = _beginning(text[::-1], most - 1)[::-1]
    place = end.find("/", 0, -1)
    return f"…{end[place:] if place >= 0 else end}"


def _beginning(text: str, most: int) -> str:
    """Returns as many of the first characters as fit into so many columns."""
    taken = 0
    for number, character in enumerate(text):
        taken += width(character)
        if taken > most:
            return text[:number]
    return text
