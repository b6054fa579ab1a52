"""Programs that talk by lines: one on their output for one on their input."""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path


def next_line(process: "subprocess.Popen[str]") -> str:
    """Returns the next line that a program prints, without its end.

    Raises:
        AssertionError: the program ended, with what it wrote on stderr.
    """
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, f"the program ended: {process.communicate()[1]}"
    return str(line).removesuffix("\n")


def expect(process: "subprocess.Popen[str]", line: str = "ready") -> None:
    """Waits until a program has printed a line, which must be this one."""
    found = next_line(process)
    assert found == line, found


def tell(process: "subprocess.Popen[str]", line: str = "") -> None:
    """Gives a program a line."""
    assert process.stdin is not None
    process.stdin.write(f"{line}\n")
    process.stdin.flush()


def start_listening(
    command: Sequence[str | Path],
    environment: Mapping[str, str],
    stderr: int | None = subprocess.PIPE,
) -> "subprocess.Popen[str]":
    """Starts a program with a pipe for each of its streams, or for all but its stderr."""
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command, env=dict(environment), text=True, bufsize=1, stdin=pipe, stdout=pipe, stderr=stderr
    )


class Listening:
    """A program that does what it is told, a line at a time."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process

    @property
    def pid(self) -> int:
        return self.process.pid

    def tell(self, line: str = "") -> None:
        """Gives it a line."""
        tell(self.process, line)

    def hear(self) -> str:
        """Returns the next line that it says."""
        return next_line(self.process)

    def kill(self) -> None:
        """Ends it at once."""
        self.process.kill()
        self.process.communicate()
