"""Programs that stop now and then, for a look at what their slice and the machine say of them.

The program calls ``look("name")`` of `support.shim.cuda_client` where it is to be looked at.
"""

from dataclasses import dataclass

from support.lines import tell
from support.shim.slices import Slice


@dataclass(frozen=True, slots=True)
class Look:
    """Bytes of the first GPU at one moment: what the slice charges, and what is really taken."""

    charged_bytes: int
    taken_bytes: int


def look_at(part: Slice) -> Look:
    """Looks at a slice whose programs stand still."""
    taken = part.machine.books()[0].memory_used_bytes
    return Look(part.usage().devices[0].used_bytes, taken)


def walk(part: Slice, code: str, *arguments: str) -> tuple[dict[str, Look], list[str]]:
    """Runs a program to its end; returns the looks by name, and the other words it printed."""
    process = part.start(f"from support.shim.cuda_client import look\n{code}", *arguments)
    assert process.stdout is not None
    looks, words = {}, []
    for line in process.stdout:
        if line.startswith("look "):
            looks[line[5:-1]] = look_at(part)
            tell(process)
        else:
            words += line.split()
    _, stderr = process.communicate()
    assert process.returncode == 0, stderr
    return looks, words


def assert_exact(looks: dict[str, Look]) -> None:
    """Asserts that in every look exactly what was taken is charged."""
    wrong = {name: seen for name, seen in looks.items() if seen.charged_bytes != seen.taken_bytes}
    assert looks and not wrong
