"""Commands as pages show them: blocks of ``console``, by the heading that they stand below.

A line that begins with ``$`` is typed by somebody who looks after the cluster, one with ``#`` by
root on a node. A backslash at the end goes on in the next line; other lines are what is printed.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_HEADING = re.compile(r"(#+) .*")
_PROMPT = re.compile(r"([$#]) (.*)")


@dataclass(frozen=True)
class Command:
    """One command.

    Attributes:
        heading: below which it stands, with its ``#``.
        is_on_node: whether root types it on a node.
        text: what is typed.
    """

    heading: str
    is_on_node: bool
    text: str


def commands(page: Path, *headings: str) -> list[Command]:
    """Returns the commands of a page in order.

    Args:
        headings: below which they stand, deeper ones among them; all of the page without one.

    Raises:
        AssertionError: the page has no such heading.
    """
    lines = page.read_text().splitlines()
    for heading in headings:
        assert heading in lines, f"{page} has no heading {heading!r}"
    return [command for command, path in _all(lines) if not headings or set(path) & set(headings)]


def _all(lines: list[str]) -> Iterator[tuple[Command, tuple[str, ...]]]:
    """Yields each command with all headings that it is below."""
    path: tuple[str, ...] = ()
    is_inside = ""  # of which kind of block
    rest = iter(lines)
    for line in rest:
        if line.startswith("```"):
            is_inside = "" if is_inside else line.removeprefix("```") or "text"
        elif not is_inside and (found := _HEADING.fullmatch(line)):
            above = tuple(each for each in path if each.index(" ") < len(found[1]))
            path = (*above, line)
        elif is_inside == "console" and (typed := _PROMPT.fullmatch(line)):
            text = typed[2]
            while text.endswith("\\"):
                text = text.removesuffix("\\").rstrip() + " " + next(rest).strip()
            yield Command(path[-1] if path else "", typed[1] == "#", text), path


def first_yaml(page: Path, heading: str) -> str:
    """Returns the first block of YAML below a heading."""
    below = page.read_text().split(f"\n{heading}\n", 1)[1]
    found = re.search(r"```yaml\n(.*?)```", below, re.DOTALL)
    assert found is not None, f"{page}: no YAML below {heading!r}"
    return found[1]
