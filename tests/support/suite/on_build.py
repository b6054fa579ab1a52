"""Runs tests of the shim once more, on a shim that was built in another way."""

import os
import sys
from pathlib import Path

from support import IS_LONG, ROOT
from support.ended import run_to_end
from support.suite.built import BUILT

#: For what hangs; no slow machine reaches it.
TESTS_SECONDS = 3600
#: What such runs leave out: what measures time or itself takes minutes.
OTHERS = "not timing and not long"

MEMORY = "tests/integration/libvgpu/memory/test_memory.py"
#: Resolution and memory.
SHORT = [
    "tests/integration/libvgpu/hooks/test_lookup.py",
    f"{MEMORY}::test_a_killed_process_gives_its_bytes_back",
    f"{MEMORY}::test_a_limit_that_divides_evenly_is_usable_to_the_last_byte",
]
#: Also launches, captures, ends of every kind, damaged files, and every hook once.
LONG = [
    "tests/integration/libvgpu/hooks/test_lookup.py",
    MEMORY,
    "tests/integration/libvgpu/hooks/test_two_gpus.py",
    "tests/integration/libvgpu/compute/test_capture.py",
    "tests/integration/libvgpu/compute/test_kernel_kinds.py",
    "tests/integration/libvgpu/slice/test_bad_files.py",
    "tests/native/slice/test_process_life.py",
    "tests/native/hooks/test_exercises.py",
]


def assert_tests_pass_on(folder: Path) -> None:
    """``folder`` is laid out as the package: the shim, and perhaps simulated libraries."""
    done = run_to_end(
        [sys.executable, "-m", "pytest", "-q", "-m", OTHERS, *(LONG if IS_LONG else SHORT)],
        cwd=ROOT,
        timeout=TESTS_SECONDS,
        env=os.environ | {BUILT: str(folder), "VGPU_LONG": "0"},
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
