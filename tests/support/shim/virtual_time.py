"""Programs in a time of their own, which jumps where all their threads wait.

`benchmarks.own_time` takes over the clock and the waits of a program. So a second takes as long as
its work does, and a run of a seed is the same each time, however fast the machine is.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks import own_time
from support import Compile
from support.ended import printed
from support.shim.slices import Slice

_FIRST, *_REST = (f"benchmarks/native/virtual_time/{part}.c" for part in own_time.PARTS)
SOURCES = (f"../../{_FIRST}", *_REST)
FLAGS = ("-shared", "-fPIC", "-fno-builtin", "-ldl")


@dataclass(frozen=True, slots=True)
class Chance:
    """How busy the host is.

    Attributes:
        seed: decides all that is left to chance.
        one_in: of so many looks at the clock, one finds that its thread had no processor.
        late_ns: for at most so long.
    """

    seed: int
    one_in: int
    late_ns: int


def run(
    compile_program: Compile, part: Slice, folder: Path, command: list[str], chance: Chance | None
) -> str:
    """Runs a C program in a slice, in a time of its own, and returns what it printed."""
    return run_program(compile_program, part.environment(), folder, command, chance)


def run_program(
    compile_program: Compile,
    environment: Mapping[str, str],
    folder: Path,
    command: list[str],
    chance: Chance | None = None,
) -> str:
    """Runs a program in a time of its own, and returns what it printed.

    Args:
        environment: of the program; the library that takes over its time is loaded first.
        folder: for the file of its time.
    """
    preload = compile_program(*SOURCES, flags=FLAGS)
    made = [f"{chance.seed} {chance.one_in} {chance.late_ns} 0"] if chance else []
    more = own_time.variables(preload, folder / "virtual-time", *made)
    more["LD_PRELOAD"] += f" {environment.get('LD_PRELOAD', '')}"
    return printed(*own_time.SAME_ADDRESSES, *command, env={**environment, **more})
