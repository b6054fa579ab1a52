"""A bundle comes whole to its place or not at all, and replaces nothing unasked."""

import os
import stat
import tarfile
from pathlib import Path

import pytest

from libvgpu.errors import AllocationRefused
from vgpuctl.bundle import archive

FILES = {"README.txt": "read me\n", "ps.json": "[]\n"}


def content(path: Path) -> dict[str, str]:
    with tarfile.open(path) as opened:
        return {m.name: opened.extractfile(m).read().decode() for m in opened.getmembers()}  # type: ignore[union-attr]


def test_the_files_are_in_it_and_only_its_maker_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "b.tar.gz"
    archive.write_archive(path, "top", FILES, 1e9, force=False)
    assert content(path) == {f"top/{name}": text for name, text in FILES.items()}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["b.tar.gz"]


def test_what_is_there_stays_without_force(tmp_path: Path) -> None:
    path = tmp_path / "b.tar.gz"
    path.write_text("mine")
    with pytest.raises(AllocationRefused, match="there already"):
        archive.check_place(path, force=False)
    with pytest.raises(AllocationRefused, match="created meanwhile"):
        archive.write_archive(path, "top", FILES, 1e9, force=False)
    assert path.read_text() == "mine"
    archive.check_place(path, force=True)
    archive.write_archive(path, "top", FILES, 1e9, force=True)
    assert "top/ps.json" in content(path)
    assert os.listdir(tmp_path) == ["b.tar.gz"]


def test_a_link_that_leads_nowhere_is_something_too(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(AllocationRefused, match="there already"):
        archive.check_place(tmp_path / "link", force=False)


@pytest.mark.parametrize(("name", "said"), [("", "is a directory"), ("a/b", "is not a directory")])
def test_a_place_that_cannot_be_is_refused(tmp_path: Path, name: str, said: str) -> None:
    with pytest.raises(AllocationRefused, match=said):
        archive.check_place(tmp_path / name, force=True)


def test_a_failure_leaves_no_half_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tarfile.TarFile, "addfile", full)
    with pytest.raises(OSError, match="No space"):
        archive.write_archive(tmp_path / "b.tar.gz", "top", FILES, 1e9, force=False)
    assert os.listdir(tmp_path) == []


def test_where_there_are_no_hard_links_it_is_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refused)
    archive.write_archive(tmp_path / "b", "top", FILES, 1e9, force=False)
    assert os.listdir(tmp_path) == ["b"]
