"""hooks.def is the truth about what the shim hooks: its rows, its exports and the driver agree."""

import ctypes
import re
import subprocess
from dataclasses import dataclass

import pytest

from support import ROOT

SHIM = ROOT / "libvgpu/libvgpu.so"
TABLE = ROOT / "libvgpu/src/hooks.def"
SIM = ROOT / "libvgpu/sim/lib"
POLICIES = {"START", "LOOKUP", "CONTEXT", "CHARGED", "VIRTUAL", "TIMED", "SYNC", "CAPTURE", "PASS"}
LOADER = {"dlsym", "dlvsym"}  # exported beside the table
ROW = re.compile(r'^ROW\((\w+),\s*"(\w*)",\s*(\d+),\s*(\w+),\s*"([^"]+)"\)$')


@dataclass(frozen=True)
class Row:
    symbol: str
    public_name: str
    since: int
    policy: str
    words: str


def rows() -> list[Row]:
    found = []
    for line in TABLE.read_text().splitlines():
        if line.startswith("ROW("):
            match = ROW.match(line)
            assert match, f"a row that the pattern cannot read: {line}"
            found.append(Row(match[1], match[2], int(match[3]), match[4], match[5]))
    return found


def exports() -> set[str]:
    output = subprocess.run(
        ["nm", "-D", "--defined-only", "--format=posix", str(SHIM)],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    return {line.split()[0] for line in output.splitlines()}


def test_every_row_has_a_known_policy_and_stands_once() -> None:
    table = rows()

    assert len(table) > 40
    assert {row.policy for row in table} <= POLICIES
    assert len({row.symbol for row in table}) == len(table)


def test_every_row_that_is_not_a_pass_is_exported_and_nothing_else_is() -> None:
    hooked = {row.symbol for row in rows() if row.policy != "PASS"}

    assert exports() == hooked | LOADER


def test_every_hooked_driver_function_has_a_public_name_and_a_version() -> None:
    for row in rows():
        if row.symbol.startswith("cu"):
            assert row.public_name, row
            assert row.symbol.startswith(row.public_name), row
            assert row.since >= 2000, row


def test_twins_are_hooked_together() -> None:
    """A per-thread-stream twin that passes is a way around its original's hook."""
    by_symbol = {row.symbol: row for row in rows()}
    for row in by_symbol.values():
        if row.symbol.endswith(("_ptsz", "_ptds")):
            original = by_symbol[row.symbol.rsplit("_", 1)[0]]
            assert (row.public_name, row.policy) == (original.public_name, original.policy)


def test_the_simulated_libraries_have_every_row() -> None:
    if not (SIM / "libcuda.so.1").exists():
        pytest.skip("the simulated driver is not built: make build")
    cuda = ctypes.CDLL(str(SIM / "libcuda.so.1"))
    nvml = ctypes.CDLL(str(SIM / "libnvidia-ml.so.1"))

    missing = [
        row.symbol for row in rows()
        if row.policy != "PASS"
        and not hasattr(nvml if row.symbol.startswith("nvml") else cuda, row.symbol)
    ]  # fmt: skip

    assert missing == []
