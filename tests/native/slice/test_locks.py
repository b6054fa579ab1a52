"""No thread of the shim takes its locks in another order than ``slice/locks.h`` says.

The shim is built with ``VGPU_CHECK_LOCKS``, where a lock out of order aborts the program, and every
exercise of every hooked function runs in it, as does a program that allocates, forks and frees on
several threads.
"""

import os
import subprocess
from pathlib import Path

import pytest

from libvgpu import _build
from libvgpu.sim import Machine
from support import Compile
from support.exercise import runner as exercise_runner
from support.exercise.runner import families, measures, run_family
from support.shim import slices
from support.shim.slices import make_slice
from support.shim.talker import Talker
from support.waiting import PATIENCE_S

SHIM_FLAGS = (
    "-shared",
    "-fPIC",
    "-fvisibility=hidden",
    "-fno-strict-aliasing",
    "-DVGPU_CHECK_LOCKS",
    "-Wno-unused-parameter",
    "-Wl,-Bsymbolic",
    "-Wl,-z,nodelete",
)
PIECE = 1 << 20
PIECES = 16


@pytest.fixture(scope="module")
def checked_library(compile_program: Compile) -> Path:
    """The shim, of which the sources that take locks are compiled so that these are checked."""
    objects = _build.build({_build.SHIM})
    locking = [
        source
        for source, made in objects.items()
        if ": libvgpu/src/slice/locks.h\n" in made.with_suffix(".of").read_text()
    ]
    others = [str(made) for source, made in objects.items() if source not in locking]
    assert "libvgpu/src/slice/locks.c" in locking
    return compile_program(f"../../{locking[0]}", *locking[1:], *others, flags=SHIM_FLAGS)


@pytest.fixture
def checked_shim(checked_library: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """It stands in for the built one for programs of this test."""
    monkeypatch.setattr(slices, "shim_path", lambda: checked_library)
    monkeypatch.setattr(exercise_runner, "_done", {})
    return checked_library


def order(compile_program: Compile, how: str) -> subprocess.CompletedProcess[str]:
    program = compile_program(
        "lock_order.c",
        "libvgpu/src/slice/locks.c",
        "libvgpu/src/slice/waiting.c",
        flags=("-DVGPU_CHECK_LOCKS",),
    )
    return subprocess.run(
        [program, how], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )


@pytest.mark.parametrize("how", ["in order", "several graph pools"])
def test_locks_in_order_pass(compile_program: Compile, how: str) -> None:
    done = order(compile_program, how)

    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("out of order", "lock out of order: LOCK_CONTEXTS under LOCK_STREAM_POOL"),
        ("two stream pools", "lock out of order: LOCK_STREAM_POOL under LOCK_STREAM_POOL"),
        ("two leaves", "lock out of order: LOCK_ALLOCATION_MAP under LOCK_HANDLES"),
        ("not held", "a lock is given back that this thread does not hold"),
    ],
)
def test_any_other_order_aborts_and_says_which(
    compile_program: Compile, how: str, said: str
) -> None:
    done = order(compile_program, how)

    assert done.returncode < 0
    assert said in done.stderr


@pytest.mark.parametrize("family", [name for name in families() if not measures(name)])
def test_every_hooked_function_takes_its_locks_in_order(checked_shim: Path, family: str) -> None:
    results = run_family(family)

    failures = [result["failure"] for result in results.values() if result["failure"]]
    assert results and not failures, "\n".join(failures)


def test_allocations_refusals_and_forks_take_their_locks_in_order(
    checked_shim: Path, machine: Machine, life_program: Path, tmp_path: Path
) -> None:
    part = make_slice(machine, tmp_path / "slice", memory_bytes=PIECES * PIECE, core_percent=50)
    environment = part.environment()
    assert environment["LD_PRELOAD"] == os.fspath(checked_shim)
    talker = Talker([str(life_program)], environment)

    assert talker.ask("init") == 0
    assert talker.ask(f"fill {PIECE}") == PIECES
    assert talker.ask("pass") == 0  # in a child, which ends ...
    talker.tell("quit 0")
    assert talker.answer() == 1  # ... and its parent goes on
    assert (talker.ask("free"), talker.ask(f"alloc {PIECE}")) == (0, 0)
    status, said = talker.end()
    assert status == 0, said
