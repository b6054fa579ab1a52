"""hooks.def is the truth about what the shim hooks: its rows, its exports and the driver agree."""

import ctypes
from collections import Counter

import pytest

from libvgpu.artifacts import SIM_LIBRARY_DIR
from libvgpu.driver_releases import RELEASES
from libvgpu.hook_table import read_hook_table
from support import ROOT
from support.exercise.runner import named
from support.shim.symbols import exports
from support.sim.driver import folder_of

SHIM = ROOT / "libvgpu/libvgpu.so"
NEWEST = list(RELEASES)[-1]
POLICIES = {
    "START",
    "LOOKUP",
    "CONTEXT",
    "CHARGED",
    "VIRTUAL",
    "TIMED",
    "SYNC",
    "POLL",
    "CAPTURE",
    "PASS",
}
LOADER = {"dlsym", "dlvsym"}  # exported in addition to the table
LEAST_WORDS = 3


def test_every_row_has_a_known_policy_and_stands_once() -> None:
    table = read_hook_table()

    assert len(table) > 40
    assert {row.policy for row in table} <= POLICIES
    times = Counter(row.symbol for row in table)
    assert [symbol for symbol, count in times.items() if count > 1] == []


def test_every_row_says_what_is_done_or_why_nothing_is() -> None:
    table = read_hook_table()

    assert [row.symbol for row in table if not row.words.strip()] == []
    passed = [row for row in table if not row.is_hooked]
    assert [
        row.symbol
        for row in passed
        if row.words.startswith("as ") or len(row.words.split()) < LEAST_WORDS
    ] == []


def test_every_row_that_is_not_a_pass_is_exercised() -> None:
    """By an exercise that names its symbol; tests/native/hooks/test_exercises.py has it called."""
    hooked = {row.symbol for row in read_hook_table() if row.is_hooked}

    assert sorted(hooked - named(RELEASES[NEWEST])) == []


def test_every_row_that_is_not_a_pass_is_exported_and_nothing_else_is() -> None:
    hooked = {row.symbol for row in read_hook_table() if row.policy != "PASS"}

    assert exports(SHIM) == hooked | LOADER


def test_every_hooked_driver_function_has_a_public_name_and_a_version() -> None:
    for row in read_hook_table():
        if row.symbol.startswith("cu"):
            assert row.public_name, row
            assert row.symbol.startswith(row.public_name), row
            assert row.since >= 2000, row


def test_the_simulated_libraries_have_every_row() -> None:
    cuda_folder = folder_of(RELEASES[NEWEST].cuda_version)
    if not cuda_folder.exists():
        pytest.skip("the simulated driver is not built: make build")
    cuda = ctypes.CDLL(str(cuda_folder / "libcuda.so.1"))
    nvml = ctypes.CDLL(str(SIM_LIBRARY_DIR / f"driver-{NEWEST}" / "libnvidia-ml.so.1"))

    missing = [
        row.symbol
        for row in read_hook_table()
        if row.policy != "PASS"
        and not hasattr(nvml if row.symbol.startswith("nvml") else cuda, row.symbol)
    ]

    assert missing == []
