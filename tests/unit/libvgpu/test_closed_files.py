"""Our directories and locks are closed to other users, and those of before as soon as they are
used."""

import os
from pathlib import Path

import pytest

from libvgpu.closed_files import close_directory, open_lock
from libvgpu.errors import VgpuError

NOBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="gives files to another user")


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


@pytest.mark.parametrize("names", [(), ("agent.lock", "lib", "checkpoint.json.compact")])
def test_a_directory_of_ours_is_closed(tmp_path: Path, names: tuple[str, ...]) -> None:
    tmp_path.chmod(0o755)
    for name in names:
        (tmp_path / name).touch()

    assert close_directory(tmp_path)

    assert mode(tmp_path) == 0o700


def test_a_directory_that_others_use_too_stays_open(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    (tmp_path / "agent.lock").touch()
    (tmp_path / "X11").touch()

    assert not close_directory(tmp_path)

    assert mode(tmp_path) == 0o1777


def test_a_lock_of_an_earlier_version_is_closed(tmp_path: Path) -> None:
    (tmp_path / "lock").touch(0o644)

    os.close(open_lock(tmp_path / "lock"))
    os.close(open_lock(tmp_path / "new"))

    assert [mode(tmp_path / name) for name in ("lock", "new")] == [0o600, 0o600]


@needs_root
def test_what_belongs_to_another_user_is_refused(tmp_path: Path) -> None:
    (tmp_path / "lock").touch(0o600)
    os.chown(tmp_path / "lock", NOBODY, NOBODY)
    (tmp_path / "directory").mkdir(0o700)
    os.chown(tmp_path / "directory", NOBODY, NOBODY)

    with pytest.raises(VgpuError, match="belongs to user 65534"):
        open_lock(tmp_path / "lock")
    with pytest.raises(VgpuError, match="belongs to user 65534"):
        close_directory(tmp_path / "directory")


def test_a_link_is_no_lock(tmp_path: Path) -> None:
    (tmp_path / "lock").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(OSError, match="symbolic link"):
        open_lock(tmp_path / "lock")
    assert not (tmp_path / "elsewhere").exists()
