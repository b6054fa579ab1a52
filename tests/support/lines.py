"""Programs that talk by lines: one on their output for one on their input."""

import subprocess

from support.warm_program import Program

Talking = subprocess.Popen[str] | Program


def next_line(process: "Talking") -> str:
    """Returns the next line that a program prints, without its end.

    Raises:
        AssertionError: the program ended, with what it wrote on stderr.
    """
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, f"the program ended: {process.communicate()[1]}"
    return str(line).removesuffix("\n")


def expect(process: "Talking", line: str = "ready") -> None:
    """Waits until a program has printed a line, which must be this one."""
    found = next_line(process)
    assert found == line, f"{found!r}: {process.communicate()[1] if not found else ''}"


def tell(process: "Talking", line: str = "") -> None:
    """Gives a program a line."""
    assert process.stdin is not None
    process.stdin.write(f"{line}\n")
    process.stdin.flush()
