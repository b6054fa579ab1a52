"""Examples at the end of a verb's ``--help``: how they are written, and which ones a verb has.

They are command lines as typed in a shell. They stand on lines of their own that no width breaks,
so that they can be copied, and the man page and the tests read them back.
"""

import inspect

import click

PROGRAM = "vgpuctl"
PLUGIN = "kubectl vgpu"
_HEADINGS = ("Example:", "Examples:")
# Click wraps no lines of a paragraph that begins with it.
_AS_IT_IS = "\b"


def examples(*lines: str) -> str:
    """Returns the epilog of a verb with these command lines."""
    heading = _HEADINGS[len(lines) > 1]
    return "\n".join([_AS_IT_IS, heading, *(f"  {line}" for line in lines)])


def examples_of(command: click.Command) -> tuple[str, ...]:
    """Returns the command lines that a verb's epilog has, in their order."""
    found = []
    for line in inspect.cleandoc(command.epilog or "").splitlines():
        for heading in _HEADINGS:
            line = line.removeprefix(heading)
        if line.strip().startswith((f"{PROGRAM} ", f"{PLUGIN} ")):
            found.append(line.strip())
    return tuple(found)
