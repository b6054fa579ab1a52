"""The ledger under SIGKILL at every instruction and under races of processes.

The C programs next to this file do the work; a broken ledger makes them exit with the sentence that
does not hold.
"""

import subprocess

import pytest

from support import IS_LONG, Compile

PURE = tuple(
    f"libvgpu/src/slice/{name}.c" for name in ("checksum", "limits_file", "usage_file", "ledger")
)
#: Instructions from one stop to the next; 1 takes five times as long as 5 and finds the same.
STRIDE = 5 if IS_LONG else 11
LEAST_INSTRUCTIONS = 100  # fewer would mean that the victim was not stepped through its work
RACE_SECONDS = 2 if IS_LONG else 1
LEAST_KILLS = 20  # a killed process is scheduled to die only after its busy peers had their turn


def run(program: str, *arguments: str) -> list[int]:
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return [int(word) for word in done.stdout.split() if word.isdigit()]


def test_killed_at_any_instruction_leaks_no_byte_and_stalls_nobody(
    compile_program: Compile,
) -> None:
    program = compile_program("ledger_kill.c", *PURE)

    (instructions,) = run(str(program), str(STRIDE))

    assert instructions > LEAST_INSTRUCTIONS


@pytest.mark.parametrize("processes", [3, 16, 63])
def test_racing_processes_never_exceed_nor_leak(compile_program: Compile, processes: int) -> None:
    program = compile_program("ledger_race.c", *PURE)

    operations, kills = run(str(program), str(processes), str(RACE_SECONDS), str(LEAST_KILLS))

    assert kills >= LEAST_KILLS
    assert operations > kills
