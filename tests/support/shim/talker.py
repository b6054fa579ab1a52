"""Programs that do what a test tells them, when it tells them (tests/native/shim_life.c)."""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from libvgpu.artifacts import SIM_LIBRARY_DIR
from support import Compile
from support.shim.slices import Slice
from support.waiting import PATIENCE_S

#: ``talk(slice)`` starts a program under a slice, with or without variables of its own.
Talk = Callable[..., "Talker"]


class Talker:
    """One program; what it is asked it answers with a number."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            command,
            env=environment,
            text=True,
            bufsize=1,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    @property
    def pid(self) -> int:
        return self.process.pid

    def tell(self, command: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()

    def answer(self) -> int:
        assert self.process.stdout is not None
        return int(self.process.stdout.readline())

    def ask(self, command: str) -> int:
        self.tell(command)
        return self.answer()

    def holds(self, size: int) -> "Talker":
        """Has it make a context and allocate; returns the program itself."""
        assert (self.ask("init"), self.ask(f"alloc {size}")) == (0, 0)
        return self

    def end(self) -> tuple[int, str]:
        """Lets it come to its end; returns its status and what it wrote on stderr."""
        with suppress(BrokenPipeError):
            self.tell("quit 0")
        _, stderr = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, stderr

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture(scope="session")
def life_program(compile_program: Compile) -> Path:
    return compile_program("shim_life.c", flags=(f"-L{SIM_LIBRARY_DIR}", "-l:libcuda.so.1"))


@pytest.fixture
def talk(life_program: Path) -> Iterator[Talk]:
    """Returns ``talk(slice, prefix=(), **variables)``; kills what it started."""
    made: list[Talker] = []

    def start(part: Slice, *, prefix: tuple[str, ...] = (), **variables: str) -> Talker:
        made.append(Talker([*prefix, str(life_program)], part.environment() | variables))
        return made[-1]

    yield start
    for each in made:
        each.kill()
