"""Code that a process loads is charged next to memory that it has from another process.

The simulated NVML counts such memory for one holder, which is its maker as long as that holds it.
"""

from pathlib import Path

import pytest

from support.shim.lazy_code import START
from support.shim.served import Served
from support.shim.slices import Slice, SliceOf
from support.sim.measured import measured_machine

MIB, GIB = 1 << 20, 1 << 30
CODE_MIB = 93

TEXT = (
    START
    + """
def export(mib):
    put(check(driver.cuMemAlloc(mib * MIB)))
    return hexadecimal(check(driver.cuIpcGetMemHandle(kept[-1])))
def open_handle(text):
    put(check(driver.cuIpcOpenMemHandle(opaque(driver.CUipcMemHandle, text), 1)))
kept = []
def put(made): kept.append(made)
def beyond():
    check(driver.cuMemGetInfo())  # gives back what the dead had
    return device_bytes() - ledger_bytes()
def load(mib): return launch(lazy(mib))
"""
)


@pytest.fixture(params=["ideal", "measured"])
def part(request: pytest.FixtureRequest, tmp_path: Path, slice_of: SliceOf) -> Slice:
    if request.param == "ideal":
        return slice_of(request.getfixturevalue("costly_machine"), memory_bytes=8 * GIB)
    return slice_of(measured_machine(tmp_path), memory_bytes=8 * GIB)


@pytest.fixture
def programs(part: Slice) -> tuple[Served, Served]:
    return Served(part, TEXT), Served(part, TEXT)


def share(programs: tuple[Served, Served], mib: int) -> None:
    exporter, importer = programs
    handle = exporter.ask(f"export({mib})")
    importer.ask("quiet()")
    importer.ask(f"open_handle({handle!r})")
    importer.ask("quiet()")


@pytest.mark.parametrize("mib", [64, 1024])
def test_code_that_an_importer_loads_is_charged(programs: tuple[Served, Served], mib: int) -> None:
    share(programs, mib)
    importer = programs[1]
    assert importer.ask("beyond()") == 0

    importer.ask(f"[load({CODE_MIB}), quiet()]")
    assert importer.ask("beyond()") == 0
    importer.ask(f"[load({CODE_MIB}), quiet()]")
    assert importer.ask("beyond()") == 0


@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "frees it"])
def test_a_piece_that_its_maker_lets_go_is_charged_once(
    programs: tuple[Served, Served], is_killed: bool
) -> None:
    share(programs, 256)
    exporter, importer = programs
    importer.ask(f"[load({CODE_MIB}), quiet()]")
    assert importer.ask("beyond()") == 0

    if is_killed:
        exporter.kill()
    else:
        exporter.ask("check(driver.cuMemFree(kept[0]))")
    importer.ask("[load(1), quiet(), quiet()]")
    assert importer.ask("beyond()") <= 0  # the figure may have it now, or not
    importer.ask("check(driver.cuIpcCloseMemHandle(kept[0]))")
    importer.ask("[load(1), quiet(), quiet()]")
    assert importer.ask("beyond()") == 0
