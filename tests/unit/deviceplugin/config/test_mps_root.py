"""What a root of the MPS daemons' files may be, and how one that may not is named."""

from pathlib import Path

import pytest

from deviceplugin.config.mps_root import check_mps_root, root_problem
from libvgpu.errors import ConfigError
from libvgpu.places import Places


@pytest.mark.parametrize("root", ["", "/run/nvidia/mps", "/mps", "/" + "x" * 255, "/a" * 2000])
def test_a_good_root(root: str) -> None:
    assert root_problem(root) == ""


@pytest.mark.parametrize("root", ["mps", "./mps", "/", "/run/../etc"])
def test_what_is_no_absolute_path_is_named(root: str) -> None:
    assert root_problem(root) == f"is {root!r}, allowed is an absolute path, not /, without .."


@pytest.mark.parametrize("root", ["/" + "x" * 256, "/a" * 2000 + "b"])
def test_what_is_too_long_is_named_by_its_length(root: str) -> None:
    problem = root_problem(root)
    assert f"of {len(root)} bytes, too long" in problem
    assert "4000 bytes, 255 for each name" in problem
    assert len(problem) < 200


def test_it_must_not_lie_in_a_directory_of_ours(tmp_path: Path) -> None:
    run, link = tmp_path / "run", tmp_path / "link"
    run.mkdir()
    link.symlink_to(run)
    for root in (run, run / "mps", link / "x", tmp_path / "link" / "mps"):
        problem = root_problem(str(root), [tmp_path / "other", run])
        assert problem.startswith(f"is {str(root)!r}, which lies in {run}, ")
        assert "allowed is a path elsewhere" in problem
        assert root_problem(str(root), [link])
    for root in (tmp_path, tmp_path / "running", tmp_path / "mps"):
        assert root_problem(str(root), [run, link]) == ""
    assert root_problem("", [run]) == ""


def test_a_config_is_refused_with_the_line(tmp_path: Path) -> None:
    places = Places("c.yaml", {"$.flags.mpsRoot": 3})
    with pytest.raises(ConfigError, match=r"^c.yaml line 3: flags.mpsRoot is .* which lies in "):
        check_mps_root(str(tmp_path / "mps"), places, [tmp_path])
