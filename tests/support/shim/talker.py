"""Programs that do what a test tells them, when it tells them (tests/native/shim_life.c)."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from libvgpu.artifacts import SIM_LIBRARY_DIR
from support import Compile
from support.lines import Listening, start_listening
from support.shim.slices import Slice
from support.waiting import PATIENCE_S

#: ``talk(slice)`` starts a program under a slice, with or without variables of its own.
Talk = Callable[..., "Talker"]


class Talker(Listening):
    """One program; what it is asked it answers with a number."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        super().__init__(start_listening(command, environment))

    def answer(self) -> int:
        return int(self.hear())

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
