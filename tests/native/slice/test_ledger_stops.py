"""A process stopped at any instruction: the others go on, and the books stay exact.

The C programs do the work and say what does not hold. Short: some 100 points of each kind of work;
long (``VGPU_LONG=1``): every one.
"""

import re
import subprocess
from pathlib import Path

import pytest

from support import IS_LONG, ROOT, Compile
from support.waiting import PATIENCE_S

MOST_POINTS = 0 if IS_LONG else 100
PURE = tuple(
    f"libvgpu/src/slice/{name}.c"
    for name in ("checksum", "limits_file", "usage_file", "life", "pids", "slot")
)
LEDGER = "libvgpu/src/slice/ledger.c"
FLAGS = ("-Wl,-z,now",)  # else the loader's own work at first calls is stepped through, too

# Each kind of work, with a number of points that it surely has.
LEAST_POINTS = {
    "attach": 400,
    "reserve": 100,
    "release": 100,
    "force": 100,
    "reclaim": 500,
    "refusal": 700,
}


def run(*command: object) -> subprocess.CompletedProcess[str]:
    arguments = [str(argument) for argument in command]
    return subprocess.run(
        arguments, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )


@pytest.mark.parametrize("work", LEAST_POINTS)
def test_a_victim_stopped_anywhere_then_killed_or_let_go_leaves_exact_books(
    compile_program: Compile, tmp_path: Path, work: str
) -> None:
    program = compile_program("ledger_step.c", LEDGER, *PURE, flags=FLAGS)

    done = run(program, tmp_path, work, MOST_POINTS)

    assert done.returncode == 0, done.stderr
    stops, stopped, points = (int(number) for number in re.findall(r"\d+", done.stdout))
    assert points >= LEAST_POINTS[work]
    assert stops > 3.9 * stopped  # four lives a point; few may miss it where libc's way varies


@pytest.mark.parametrize("way", ["lowered", "twice"])
def test_a_reservation_never_stands_over_a_limit_lowered_before_it(
    compile_program: Compile, way: str
) -> None:
    program = compile_program("ledger_relimit.c", LEDGER, *PURE, flags=FLAGS)

    done = run(program, way)

    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 100


# What each line of the ledger is for, shown by taking it out.
MUTANTS = {
    "the undo": (
        "if (total <= ledger_limit_bytes(ledger) || !undo(ledger, slot, bytes))",
        "if (sizeof undo)",
        ("ledger_relimit.c", "lowered"),
        "granted over the limit",
    ),
    "the second look at the generation of limits": (
        "if (limits_generation(ledger->limits) != generation)",
        "if (0)",
        ("ledger_relimit.c", "twice"),
        "granted over the limit",
    ),
    "the look at gen before reaping": (
        "word.low == 0 || gen_of(ledger, slot) != gen",
        "word.low == 0",
        ("ledger_step.c", "reclaim"),
        "the newcomer's",
    ),
    "the second look at gen": (
        " && gen_of(ledger, other) == note->gen;",
        ";",
        ("ledger_step.c", "reclaim"),
        "the victim was told -12",
    ),
    "the second look at how many slots there are": (
        "if (hi_slot_of(ledger) != hi_slot)",
        "if (0)",
        ("ledger_step.c", "reclaim"),
        "the victim was told -12",
    ),
    "the note of count": (
        " && word.high == note->count",
        "",
        ("ledger_step.c", "reclaim"),
        "the victim was told -12",
    ),
    "the help": (
        "word128_cas(word, before, after);",
        "(void)after;",
        ("ledger_step.c", "reserve"),
        "beside a stopped victim",
    ),
}


@pytest.mark.parametrize("part", MUTANTS)
def test_a_ledger_without_a_part_of_it_is_found_out(
    compile_program: Compile, tmp_path: Path, part: str
) -> None:
    code, instead, (source, work), sentence = MUTANTS[part]
    text = (ROOT / LEDGER).read_text()
    assert text.count(code) == 1, "the ledger has changed: change the mutant, too"
    mutant = tmp_path / "ledger.c"
    mutant.write_text(text.replace(code, instead))
    program = compile_program(source, str(mutant), *PURE, flags=FLAGS)

    arguments = [work] if source == "ledger_relimit.c" else [tmp_path, work, 0]
    done = run(program, *arguments)

    assert done.returncode == 1
    assert sentence in done.stderr
