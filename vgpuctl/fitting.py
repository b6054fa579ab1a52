"""Which columns of a table a terminal has room for. Pure.

Columns are taken in the order of their rank while there is room; what does not fit is left out
whole. Columns of names may be shortened: the columns of rank 1 come before their full width, all
others after it. So a narrow terminal loses columns, and no row needs a second line.
"""

import unicodedata
from collections.abc import Sequence

#: Between two columns.
GAP = "  "

#: The least that is left of a name: as wide as the heading of `ps`. Only where the columns that are
#: always shown have no room else, less is.
_LEAST_NAME, _SHORTEST_NAME = 14, 8

#: Rank of a column that is always shown, and of one that is worth more than a whole name.
ALWAYS, BEFORE_NAMES = 0, 1


def fitting(
    widths: Sequence[int], ranks: Sequence[int], names: Sequence[int], most: int
) -> tuple[list[int], dict[int, int]]:
    """Returns which columns to show, and how wide the names among them may be.

    A terminal that is too narrow even for the shortest names gets lines that it breaks itself.

    Args:
        widths: of each column, in columns of the terminal.
        ranks: of each column; the lower, the longer it stays.
        names: which columns may be shortened; the first of them is shortened last.
        most: the terminal's width.
    """
    taken = {
        n: min(widths[n], _LEAST_NAME) if n in names else widths[n]
        for n, rank in enumerate(ranks)
        if rank == ALWAYS
    }

    def left() -> int:
        return most - sum(taken.values()) - len(GAP) * (len(taken) - 1)

    def widen() -> None:
        for number in names:
            if number in taken:
                taken[number] += max(0, min(widths[number] - taken[number], left()))

    for number in reversed(names):
        if left() < 0 and number in taken:
            taken[number] = max(min(taken[number], _SHORTEST_NAME), taken[number] + left())
    for number in sorted(range(len(ranks)), key=lambda n: ranks[n]):
        if ranks[number] > BEFORE_NAMES:
            widen()
        if number not in taken and left() >= widths[number] + len(GAP):
            taken[number] = widths[number]
    widen()
    return sorted(taken), {n: taken[n] for n in names if n in taken}


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
        begin = beginning(text, most - 1)
        words = begin if text[len(begin)] == " " else begin.rpartition(" ")[0]
        return f"{words or begin}…"
    end = beginning(text[::-1], most - 1)[::-1]
    place = end.find("/", 0, -1)
    return f"…{end[place:] if place >= 0 else end}"


def padded(text: str, most: int, right: bool = False) -> str:
    """Returns a text with spaces behind it, or before it, in so many columns."""
    space = " " * (most - width(text))
    return space + text if right else text + space


def beginning(text: str, most: int) -> str:
    """Returns as many of the first characters as fit into so many columns."""
    taken = 0
    for number, character in enumerate(text):
        taken += width(character)
        if taken > most:
            return text[:number]
    return text
