"""Where a daemon's pipe and logs are, and that they move only while nobody has them mounted."""

import os
from pathlib import Path

import pytest

from deviceplugin.cdi.trees import NodeRoot, Tree
from deviceplugin.mps import pipe_mount
from deviceplugin.mps.daemon_home import DaemonHome
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


def test_a_directory_that_nobody_has_gets_a_file_system_of_its_own(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounted: list[Path] = []
    monkeypatch.setattr(pipe_mount, "mount", lambda pipe, run: mounted.append(pipe))
    home = DaemonHome(run_dir, UUID)

    home.make(may_move=False)
    assert mounted == [home.pipe]  # it is new
    home.make(may_move=False)  # containers may have it
    (home.pipe / "control").touch()
    home.make(may_move=True)  # somebody may answer there
    assert mounted == [home.pipe]
    (home.pipe / "control").unlink()
    home.make(may_move=True)
    assert mounted == [home.pipe] * 2


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


def test_nobody_but_root_comes_in_from_the_host(run_dir: Path, root: Path) -> None:
    """Below the run directory nobody does; containers have the pipe directory itself."""
    (root / UUID).mkdir(parents=True, mode=0o755)  # as an earlier version made it
    DaemonHome(run_dir, UUID, str(root)).make(may_move=False)
    assert (root / UUID).stat().st_mode & 0o777 == 0o700


def test_what_no_path_leads_to_any_more_is_left_though_it_is_mounted(
    run_dir: Path, root: Path, tmp_path: Path
) -> None:
    DaemonHome(run_dir, UUID, str(root)).make(may_move=True)
    root.rename(tmp_path / "unmounted")
    there = DaemonHome(run_dir, UUID, str(tmp_path / "other"))
    there.make(may_move=False)
    assert there.pipe.resolve() == tmp_path / "other" / UUID / "pipe"
    assert (tmp_path / "unmounted" / UUID / "pipe").is_dir()


def test_a_root_that_is_not_the_nodes_is_refused(run_dir: Path, root: Path, tmp_path: Path) -> None:
    """A pod that does not mount the root has a directory of that name which no container sees."""
    here = DaemonHome(run_dir, UUID)
    here.make(may_move=True)
    node = NodeRoot(Tree(str(tmp_path / "node")))
    there = DaemonHome(run_dir, UUID, str(root), node)
    for made_on_the_node in (False, True):
        with pytest.raises(MpsError, match=r"is not the node's .*mount it into this pod"):
            there.make(may_move=True)
        assert not here.is_elsewhere()
        assert here.pipe.is_dir()
        if not made_on_the_node:
            (tmp_path / f"node{root}").mkdir(parents=True)
