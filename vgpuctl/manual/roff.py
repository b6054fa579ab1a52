"""Text and macros of man pages, for every formatter that knows an(7). Pure."""

import textwrap
from collections.abc import Iterable

_WIDTH = 72  # of a line of input, so that a change of a word is a change of a line
_ESCAPES = {
    "\\": r"\e",
    "-": r"\-",  # otherwise a hyphen, which no shell takes when it is copied
    "'": r"\(aq",
    "`": r"\(ga",
    "^": r"\(ha",
    "~": r"\(ti",
    '"': r"\(dq",
}


def text(line: str) -> str:
    """Returns a line as it is to be seen."""
    return "".join(_ESCAPES.get(c, c if c.isascii() else f"\\[u{ord(c):04X}]") for c in line)


def _protected(escaped: str) -> str:
    """Returns a line of input that no formatter takes for a macro."""
    return f"\\&{escaped}" if escaped.startswith(".") else escaped


def lines(words: str) -> list[str]:
    """Returns text as lines of input, which are filled where it is shown."""
    wrapped = textwrap.wrap(words, _WIDTH, break_long_words=False, break_on_hyphens=False)
    return [_protected(text(each)) for each in wrapped]


def macro(name: str, *arguments: str) -> str:
    """Returns a call of a macro; its arguments are text."""
    return " ".join([f".{name}", *(f'"{text(each)}"' for each in arguments)])


def tagged(tag: str, paragraphs: Iterable[str]) -> list[str]:
    """Returns a bold tag with a text next to it, the first paragraph at the same height."""
    found = [".TP", macro("B", tag)]
    for number, paragraph in enumerate(paragraphs):
        found += [".IP"] * (number > 0) + lines(paragraph)
    return found


def as_it_is(shown: Iterable[str]) -> list[str]:
    """Returns lines that are not filled, indented, in the type of code."""
    return [".PP", ".RS 4", ".EX", *(_protected(text(each)) for each in shown), ".EE", ".RE"]
