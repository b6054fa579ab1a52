"""Names and versions in our tables are those of NVIDIA's headers, of every CUDA version we know."""

import re
from pathlib import Path

import pytest

from libvgpu.driver_releases import CUDA_VERSIONS
from libvgpu.hook_table import HookRow, read_hook_table
from support import ROOT
from support.shim.cuda_names import NEWEST, Abi, abis, includes, symbols, versions
from support.shim.headers import COMPILER
from support.shim.symbols import exports
from support.sim.driver import folder_of

ABSENT = ROOT / "libvgpu/sim/driver/absent.def"
NEWEST_CUDA = max(CUDA_VERSIONS.values())
# Their header is none of a wheel; the typedefs alone are.
WITHOUT_HEADER = {"cuProfilerInitialize", "cuProfilerStart", "cuProfilerStop"}

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no gcc")


def headers(version: str) -> Path:
    """Returns the folder of a version's headers; without it the test is skipped."""
    folder = includes(version)
    if folder is None:
        pytest.skip(f"no headers of CUDA {version}: make setup")
    return folder


def driver_rows() -> dict[str, HookRow]:
    return {row.symbol: row for row in read_hook_table() if row.symbol.startswith("cu")}


def abi_of(row: HookRow) -> Abi:
    return Abi(row.public_name, row.since, row.symbol[-5:] if row.twin_of else "")


def simulated_symbols() -> set[str]:
    return exports(folder_of(NEWEST_CUDA) / "libcuda.so.1")


@pytest.mark.parametrize("version", versions())
def test_every_symbol_of_the_headers_is_a_row(version: str) -> None:
    known = symbols(headers(version))

    assert len(known) > 500
    assert sorted(known - driver_rows().keys()) == []


@pytest.mark.parametrize("version", versions())
def test_every_abi_of_the_headers_is_a_row_with_its_version(version: str) -> None:
    known = abis(headers(version))

    assert len(known) > 500
    assert sorted(known - {abi_of(row) for row in driver_rows().values()}) == []


def test_every_row_is_known_to_a_header_by_symbol_and_version() -> None:
    folders = [headers(version) for version in versions()]
    known_symbols = frozenset[str]().union(*(symbols(folder) for folder in folders))
    known_abis = frozenset[Abi]().union(*(abis(folder) for folder in folders))

    rows = driver_rows()

    assert rows.keys() - known_symbols == WITHOUT_HEADER
    assert [row.symbol for row in rows.values() if abi_of(row) not in known_abis] == []


def test_every_symbol_of_the_simulated_driver_is_a_row() -> None:
    assert sorted(simulated_symbols() - driver_rows().keys()) == []


def test_the_simulated_driver_has_every_entry_point_up_to_its_version() -> None:
    known = abis(headers(NEWEST))
    wanted = {(name, since) for name, since, _ in known if since <= NEWEST_CUDA}

    rows = driver_rows()
    have = {(rows[symbol].public_name, rows[symbol].since) for symbol in simulated_symbols()}

    assert have == wanted


def test_what_the_simulated_driver_lacks_is_sorted_and_of_its_version() -> None:
    absent = re.findall(r"^ABSENT\((\w+)\)$", ABSENT.read_text(), flags=re.M)

    assert absent == sorted(set(absent))
    assert [symbol for symbol in absent if driver_rows()[symbol].since > NEWEST_CUDA] == []
