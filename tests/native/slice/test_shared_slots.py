"""Slots of memory that several processes hold: charged once, as long as any of them lives.

The C programs next to this file do the work; what does not hold they say in a sentence, and fail.
"""

from pathlib import Path

import pytest

from support import IS_LONG, Compile
from support.ended import printed

SOURCES = tuple(
    f"libvgpu/src/slice/{name}.c"
    for name in (
        "checksum",
        "limits_file",
        "usage_file",
        "ledger",
        "life",
        "pids",
        "slot",
        "slot_pieces",
    )
)
KILLS = 4000 if IS_LONG else 60
#: Every so many instructions; what the ledger does is short, and all of it is taken.
STRIDES = (
    {"reap": 1, "leave": 3, "beside": 5, "claim": 211, "join": 5, "alive": 5, "make": 53}
    if IS_LONG
    else {"reap": 2, "leave": 29, "beside": 53, "claim": 2003, "join": 31, "alive": 43, "make": 401}
)
LEAST_INSTRUCTIONS = 50  # fewer would mean that the victim was not stepped through its work
BOUND = "-Wl,-z,now"  # the dynamic linker's work is not what is looked at


def run(program: Path, *arguments: str) -> list[int]:
    return [int(word) for word in printed(program, *arguments).split() if word.isdigit()]


@pytest.mark.parametrize("victim", STRIDES)
def test_who_joins_beside_a_stopped_process_holds_every_byte(
    compile_program: Compile, tmp_path: Path, victim: str
) -> None:
    program = compile_program("shared_slots_step.c", *SOURCES, flags=(BOUND,))

    (places,) = run(program, str(tmp_path / "usage"), victim, str(STRIDES[victim]))

    assert places * STRIDES[victim] > LEAST_INSTRUCTIONS


@pytest.mark.parametrize("processes", [3, 16])
def test_racing_and_dying_holders_neither_leak_nor_free_a_byte(
    compile_program: Compile, tmp_path: Path, processes: int
) -> None:
    program = compile_program("shared_slots_race.c", *SOURCES)

    operations, quiet_points = run(program, str(tmp_path / "usage"), str(processes), str(KILLS))

    assert quiet_points >= KILLS // 4
    assert operations > KILLS


def test_pieces_leave_slots_for_processes(compile_program: Compile, tmp_path: Path) -> None:
    program = compile_program("shared_slots_many.c", *SOURCES)

    (pieces,) = run(program, str(tmp_path / "usage"))

    assert pieces >= 1000


def test_what_is_in_the_way_is_told_and_leaves_nothing_held(
    compile_program: Compile, tmp_path: Path
) -> None:
    assert run(compile_program("shared_slots_refused.c", *SOURCES), str(tmp_path / "usage")) == []
