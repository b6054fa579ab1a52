"""Where a daemon's pipe and logs are, and that they move only while nobody has them mounted."""

import os
from pathlib import Path

import pytest

from deviceplugin.mps.daemon_home import DaemonHome, check_root
from libvgpu.errors import MpsError

UUID = "GPU-a"


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    return tmp_path / "run"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "elsewhere" / "mps"


def test_without_a_root_it_is_below_the_run_directory(run_dir: Path) -> None:
    home = DaemonHome(run_dir, UUID)
    home.make(may_move=True)
    assert home.pipe == run_dir / "mps" / UUID / "pipe"
    assert home.pipe.is_dir()
    assert home.log.is_dir()
    assert not home.pipe.parent.is_symlink()
    assert not home.is_elsewhere()


def test_with_a_root_the_same_path_leads_there(run_dir: Path, root: Path) -> None:
    home = DaemonHome(run_dir, UUID, str(root))
    home.make(may_move=False)
    assert home.pipe == run_dir / "mps" / UUID / "pipe"
    assert home.pipe.resolve() == root / UUID / "pipe"
    assert (root / UUID / "pipe").stat().st_mode & 0o777 == 0o755
    assert not home.is_elsewhere()


def test_it_moves_both_ways_and_leaves_nothing(run_dir: Path, root: Path) -> None:
    here, there = DaemonHome(run_dir, UUID), DaemonHome(run_dir, UUID, str(root))
    here.make(may_move=True)
    (here.pipe / "control").touch()
    assert there.is_elsewhere()
    there.make(may_move=True)
    assert list(there.pipe.iterdir()) == []
    assert here.is_elsewhere()
    here.make(may_move=True)
    assert not here.pipe.parent.is_symlink()
    assert list(root.iterdir()) == []


def test_what_containers_have_mounted_stays(run_dir: Path, root: Path) -> None:
    here, there = DaemonHome(run_dir, UUID), DaemonHome(run_dir, UUID, str(root))
    here.make(may_move=True)
    inode = here.pipe.stat().st_ino
    there.make(may_move=False)
    assert there.is_elsewhere()
    assert there.pipe.stat().st_ino == inode
    assert not root.exists()


def test_a_link_that_outlived_its_directory_leads_again(run_dir: Path, root: Path) -> None:
    home = DaemonHome(run_dir, UUID, str(root))
    home.make(may_move=True)
    for name in ("pipe", "log"):
        (root / UUID / name).rmdir()
    (root / UUID).rmdir()
    home.make(may_move=False)
    assert home.pipe.is_dir()


def test_what_cannot_be_made_is_an_error_of_the_disk(run_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        DaemonHome(run_dir, UUID, str(tmp_path / "file")).make(may_move=True)
    assert not os.path.lexists(run_dir / "mps" / UUID)


@pytest.mark.parametrize("root", ["", "/run/nvidia/mps"])
def test_a_good_root(root: str) -> None:
    check_root(root)


@pytest.mark.parametrize("root", ["mps", "./mps", "/", "/run/../etc"])
def test_a_bad_root_is_named(root: str) -> None:
    with pytest.raises(MpsError, match="absolute path") as caught:
        check_root(root)
    assert repr(root) in caught.value.message
