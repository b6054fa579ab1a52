"""The ledger under SIGKILL at every instruction and under races of processes.

The C programs next to this file do the work; a broken ledger makes them exit with the sentence that
does not hold.
"""

import pytest

from support import IS_LONG, Compile
from support.printed import printed

PURE = tuple(
    f"libvgpu/src/slice/{name}.c" for name in ("checksum", "limits_file", "usage_file", "ledger")
)
#: Instructions from one stop to the next; 1 takes five times as long as 5 and finds the same.
STRIDE = 5 if IS_LONG else 31
LEAST_INSTRUCTIONS = 1000  # fewer would mean that the victim was not stepped through its work
#: How many race, and how many die: a killed one ends only after its busy peers had their turn.
KILLS = {3: 100, 16: 30, 63: 10}
TIMES = 20 if IS_LONG else 1


def run(program: str, *arguments: str) -> list[int]:
    return [int(word) for word in printed(program, *arguments).split() if word.isdigit()]


def test_killed_at_any_instruction_leaks_no_byte_and_stalls_nobody(
    compile_program: Compile,
) -> None:
    program = compile_program("ledger_kill.c", *PURE)

    (kills,) = run(str(program), str(STRIDE))

    assert kills * STRIDE > LEAST_INSTRUCTIONS


@pytest.mark.parametrize("processes", KILLS)
def test_racing_processes_never_exceed_nor_leak(compile_program: Compile, processes: int) -> None:
    program = compile_program("ledger_race.c", *PURE)

    operations, kills = run(str(program), str(processes), str(TIMES * KILLS[processes]))

    assert operations > kills >= TIMES * KILLS[processes]
