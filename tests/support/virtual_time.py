"""Programs in a time of their own, which jumps where all their threads wait.

``tests/native/virtual_time`` takes over the clock and the waits of a program. So a second takes as
long as its work does, and a run of a seed is the same each time, however fast the machine is.
"""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from support import Compile
from support.slices import Slice
from support.waiting import PATIENCE_S


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
    preload = compile_program(
        "virtual_time/interpose.c",
        "tests/native/virtual_time/turn.c",
        flags=("-shared", "-fPIC", "-fno-builtin", "-ldl"),
    )
    environment = part.environment()
    environment["LD_PRELOAD"] = f"{preload} {environment['LD_PRELOAD']}"
    environment["VIRTUAL_TIME_FILE"] = str(folder / "virtual-time")
    if chance is not None:
        environment["VIRTUAL_TIME_CHANCE"] = f"{chance.seed} {chance.one_in} {chance.late_ns}"
    # At the same addresses each time: what the shim knows of a kernel lies at a hash of one.
    result = subprocess.run(
        ["setarch", "-R", *command],
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout
