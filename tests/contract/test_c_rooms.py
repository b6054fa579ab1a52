"""In the shim every include points down: from a room to itself or to one below it."""

import re

import pytest

from support import ROOT

SOURCES = ROOT / "libvgpu/src"
#: From the ground up.
ROOMS = (
    "driver",
    "slice",
    "compute/turns",
    "compute/measure",
    "compute/cap",
    "memory/ledger",
    "memory/pools",
    "memory/shared",
    "memory/vmm",
    "memory/contexts",
    "memory/local",
    "memory/graphs",
    "memory/code",
    "hooks",
)
#: The table of what is hooked is data, which the ground floor reads as well.
TABLE = "hooks/hooks.def"
_INCLUDE = re.compile(r'^\s*#\s*include "([^"]+)"', re.M)


def arrows_up(file: str, text: str) -> list[str]:
    """Returns what a file of the shim includes of rooms above its own."""
    place = ROOMS.index(file.rpartition("/")[0])
    return [
        each
        for each in _INCLUDE.findall(text)
        if each != TABLE
        and (room := each.rpartition("/")[0]) in ROOMS
        and ROOMS.index(room) > place
    ]


def test_every_file_lies_in_a_room() -> None:
    rooms = {str(path.parent.relative_to(SOURCES)) for path in SOURCES.rglob("*.[ch]")}
    assert rooms == set(ROOMS)


@pytest.mark.parametrize("room", ROOMS)
def test_no_include_points_up(room: str) -> None:
    files = sorted((SOURCES / room).glob("*.[ch]"))
    up = {path.name: arrows_up(f"{room}/{path.name}", path.read_text()) for path in files}
    assert {name: found for name, found in up.items() if found} == {}


def test_an_include_that_points_up_is_seen() -> None:
    text = '#include "driver/real.h"\n#include "hooks/hook.h"\n#include "vgpu/contract.h"\n'
    assert arrows_up("slice/region.c", text) == ["hooks/hook.h"]
