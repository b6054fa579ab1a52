"""The parts that threads share, under AddressSanitizer, UBSanitizer and ThreadSanitizer.

ThreadSanitizer goes by addresses: of threads that map the same file each for itself it sees
nothing. So the ledger also runs with eight threads in one mapping, and there it reports a planted
plain store. Faults planted in the arbiter show that each sanitizer looks at it.
"""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from libvgpu._sources import ARBITER_SOURCES, sources
from support import IS_LONG, ROOT, Compile
from support.shim.native_programs import shim_files
from support.shim.ringers import make_tenant
from support.waiting import PATIENCE_S

LEDGER = shim_files("checksum", "limits_file", "usage_file", "ledger", "life", "pids", "slot")
ARBITER_NEEDS = LEDGER[:3]
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
TENANTS, LIVES = 4, 500 if IS_LONG else 20
SANITIZERS = {
    "address": ("-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
    "thread": ("-fsanitize=thread", "-DVGPU_TSAN", "-Wno-tsan"),
}
LOCK, COUNT = "pthread_mutex_lock(&arbiter->lock);", "counters->wakes = arbiter->wakes;"
PLANTED = [
    pytest.param(
        *("thread", f"{LOCK}\n    {COUNT}", f"{COUNT}\n    {LOCK}", "data race"), id="race"
    ),
    pytest.param(
        *("address", "&arbiter->rings[index]", "arbiter->rings + POLICY_MAX_TENANTS + index"),
        "heap-buffer-overflow",
        id="heap",
    ),
    pytest.param(
        *("address", "now_ns - ring->counted_ns", "now_ns + INT64_MAX - ring->counted_ns"),
        "signed integer overflow",
        id="overflow",
    ),
]
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


def run_arbiter(
    compile_program: Compile, tmp_path: Path, sources: Sequence[str], sanitizer: str
) -> subprocess.CompletedProcess[str]:
    flags = ("-Ilibvgpu/arbiter", *SANITIZERS[sanitizer])
    program = compile_program("arbiter_threads.c", *sources, *ARBITER_NEEDS, flags=flags)
    tenants = [make_tenant(tmp_path / f"tenant-{i}") for i in range(TENANTS)]
    return run(program, LIVES, *tenants)


@pytest.mark.parametrize("sanitizer", SANITIZERS)
def test_tenants_that_come_want_and_go_at_once_leave_the_arbiter_clean(
    compile_program: Compile, tmp_path: Path, sanitizer: str
) -> None:
    done = run_arbiter(compile_program, tmp_path, sources(*ARBITER_SOURCES), sanitizer)

    assert done.returncode == 0, done.stderr[:4000]
    assert int(done.stdout) > 0, "it never woke"


@pytest.mark.parametrize(("sanitizer", "code", "instead", "said"), PLANTED)
def test_a_fault_planted_in_the_arbiter_is_reported(
    compile_program: Compile, tmp_path: Path, sanitizer: str, code: str, instead: str, said: str
) -> None:
    [arbiter], others = sources("libvgpu/arbiter/arbiter.c"), sources(*ARBITER_SOURCES)
    others.remove(arbiter)
    text = (ROOT / arbiter).read_text()
    assert text.count(code) == 1, "it has changed: change what is planted, too"
    planted = tmp_path / "planted.c"
    planted.write_text(text.replace(code, instead))

    done = run_arbiter(compile_program, tmp_path, [str(planted), *others], sanitizer)

    assert done.returncode != 0
    assert said in done.stderr
    assert "planted.c" in done.stderr


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
