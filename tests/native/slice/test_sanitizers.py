"""The parts that threads share, under AddressSanitizer, UBSanitizer and ThreadSanitizer.

ThreadSanitizer goes by addresses: of threads that map the same file each for itself it sees
nothing. So the ledger also runs with eight threads in one mapping, and there it reports a planted
plain store.
"""

import os
import subprocess
from pathlib import Path

import pytest

from support import IS_LONG, ROOT, Compile
from support.shim.native_programs import shim_files
from support.waiting import PATIENCE_S

LEDGER = shim_files("checksum", "limits_file", "usage_file", "ledger", "life", "pids", "slot")
MAP = shim_files("allocation_map", "locks", "waiting")
RESOLVER = (
    "tests/native/resolve_stubs.c",
    *shim_files("resolve", "real", "elf_lookup", "log"),
)
HIDDEN = ("-Wl,--version-script=tests/native/resolve_hidden.map", "-Wno-unused-parameter")
DRIVERS = ROOT / "libvgpu/sim/lib"
LEAST_NAMES = 60  # that the simulated driver and NVML have and the table hooks
MOST_LINES = 8  # on stderr, of names that a process noted (entry_notes.c)
LEDGER_ROUNDS, MAP_ROUNDS = (200_000, 200_000) if IS_LONG else (10_000, 20_000)
SANITIZERS = {
    "address": ("-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
    "thread": ("-fsanitize=thread", "-DVGPU_TSAN", "-Wno-tsan"),
}
REPORTED = 66  # ThreadSanitizer's exit status


def run(*command: object) -> subprocess.CompletedProcess[str]:
    arguments = [str(argument) for argument in command]
    # For that check GCC 13 moves variables to a place that is not aligned as they ask.
    options = "detect_stack_use_after_return=0"
    environment = {**os.environ, "LD_LIBRARY_PATH": str(DRIVERS), "ASAN_OPTIONS": options}
    return subprocess.run(
        arguments, capture_output=True, text=True, timeout=PATIENCE_S, check=False, env=environment
    )


@pytest.mark.parametrize("mapping", ["own", "one"])
@pytest.mark.parametrize("sanitizer", SANITIZERS)
def test_eight_threads_on_one_ledger_are_clean(
    compile_program: Compile, tmp_path: Path, sanitizer: str, mapping: str
) -> None:
    program = compile_program("ledger_threads.c", *LEDGER, flags=SANITIZERS[sanitizer])

    done = run(program, tmp_path, mapping, LEDGER_ROUNDS)

    assert done.returncode == 0, done.stderr[:4000]
    assert int(done.stdout) > 0, "nobody was refused"


def test_a_plain_store_to_the_ledger_is_reported(compile_program: Compile, tmp_path: Path) -> None:
    flags = (*SANITIZERS["thread"], "-DPLANTED_RACE")
    program = compile_program("ledger_threads.c", *LEDGER, flags=flags)

    done = run(program, tmp_path, "one", LEDGER_ROUNDS)

    assert done.returncode == REPORTED
    assert "data race" in done.stderr


@pytest.mark.parametrize("sanitizer", [None, *SANITIZERS])
def test_the_map_of_allocations_is_exact_with_eight_threads(
    compile_program: Compile, sanitizer: str | None
) -> None:
    flags = SANITIZERS[sanitizer] if sanitizer else ()
    program = compile_program("allocation_map_threads.c", *MAP, flags=flags)

    done = run(program, MAP_ROUNDS)

    assert done.returncode == 0, done.stderr[:4000]


@pytest.mark.parametrize("sanitizer", SANITIZERS)
def test_eight_threads_resolve_every_name_at_once(compile_program: Compile, sanitizer: str) -> None:
    flags = (*SANITIZERS[sanitizer], *HIDDEN)
    program = compile_program("resolve_threads.c", *RESOLVER, flags=flags)

    done = run(program)

    assert done.returncode == 0, done.stderr[:4000]
    assert int(done.stdout) > LEAST_NAMES


@pytest.mark.parametrize("sanitizer", SANITIZERS)
def test_eight_threads_note_each_name_once(compile_program: Compile, sanitizer: str) -> None:
    notes = ("libvgpu/src/slice/entry_notes.c", "libvgpu/src/driver/log.c")
    program = compile_program("entry_notes_threads.c", *notes, flags=SANITIZERS[sanitizer])

    done = run(program)

    assert done.returncode == 0, done.stderr[:4000]
    lines = done.stderr.splitlines()
    assert len(lines) == MOST_LINES
    assert all(line.startswith("libvgpu: the driver answers cuName") for line in lines)
