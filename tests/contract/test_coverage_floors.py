"""A room that is new, moved or gone is noticed here, before `make coverage` runs."""

import json

from support import ROOT
from support.room_coverage import FLOORS, room_of


def test_every_room_has_a_floor() -> None:
    rooms = {
        room_of(str(path.relative_to(ROOT)))
        for package in ("libvgpu", "deviceplugin", "vgpuctl")
        for path in (ROOT / package).rglob("*.py")
        if path.read_text().strip()
    }

    assert json.loads(FLOORS.read_text()).keys() ^ rooms == set()
