"""Names and versions in our tables are those of NVIDIA's header."""

import re

import pytest

from libvgpu.hook_table import read_hook_table
from support import ROOT
from support.headers import CUDA, cuda_versions

ENTRIES = ROOT / "libvgpu/sim/driver/entries.def"
SIMULATED_VERSION = 13000
# Real entry points that the typedef header leaves out.
NOT_IN_HEADER = {"cuProfilerStart", "cuProfilerStop"}

pytestmark = pytest.mark.skipif(
    CUDA.path is None, reason=f"no {CUDA.header}: install {CUDA.package}"
)


def test_the_simulated_drivers_table_has_every_entry_point_up_to_its_version() -> None:
    wanted = {
        (name, version)
        for name, versions in cuda_versions().items()
        for version in versions
        if version <= SIMULATED_VERSION
    }

    rows = re.findall(
        r'^(?:ENTRY|ABSENT)\(\w+, "(\w+)", (\d+), \w+\)', ENTRIES.read_text(), flags=re.M
    )
    have = {(name, int(version)) for name, version in rows}

    assert wanted <= have
    assert {name for name, _ in have - wanted} <= NOT_IN_HEADER


def test_hooks_name_each_abi_by_the_version_that_brought_it() -> None:
    rows = [row for row in read_hook_table() if row.symbol.startswith("cu")]
    known = cuda_versions()

    wrong = [
        row for row in rows
        if row.since not in known.get(row.public_name, set())
        and row.public_name not in NOT_IN_HEADER
    ]  # fmt: skip

    assert len(rows) > 40
    assert wrong == []
