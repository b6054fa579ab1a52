"""A demo puts its files where they can work."""

import os
import tempfile
from pathlib import Path

import pytest

from libvgpu.errors import VgpuError
from vgpuctl.demo import workspace

PLACE = Path("/dev/shm")  # of memory, so a workspace can be there


def test_what_a_place_lacks_is_named() -> None:
    assert workspace.what_is_missing(PLACE) is None
    assert workspace.what_is_missing(PLACE / "no-such") == (
        "cannot be used: No such file or directory"
    )
    assert workspace.what_is_missing(PLACE / ("x" * 30)) == "has too long a name"


@pytest.mark.parametrize(
    ("flag", "free_blocks", "why"),
    [(os.ST_NOEXEC, 1 << 20, "is mounted noexec"), (0, 1, "has less than 60 MiB free")],
)
def test_a_place_without_room_or_programs_is_none(
    monkeypatch: pytest.MonkeyPatch, flag: int, free_blocks: int, why: str
) -> None:
    values = list(os.statvfs(PLACE))
    values[8:9], values[4] = [flag], free_blocks
    monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result(values))

    assert workspace.what_is_missing(PLACE) == why


def test_the_first_place_that_fits_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    lacks = {"/tmp": "is mounted noexec", "/var/tmp": None}
    monkeypatch.setattr(tempfile, "gettempdir", lambda: "/tmp")
    monkeypatch.setattr(workspace, "what_is_missing", lambda path: lacks.get(str(path), "is full"))
    assert workspace.base_directory() == Path("/var/tmp")

    lacks["/var/tmp"] = "is read-only"
    with pytest.raises(VgpuError, match="/tmp is mounted noexec; /var/tmp is read-only; /dev/shm"):
        workspace.base_directory()
