"""The copy that the image's wheel is built in: compiled files stay, everything stale goes."""

from pathlib import Path

import pytest

from deploy.image import project


def test_a_second_build_finds_what_was_compiled_and_nothing_stale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, copy = tmp_path / "root", tmp_path / "copy"
    (root / "libvgpu").mkdir(parents=True)
    (root / "libvgpu/a.c").write_text("new")
    monkeypatch.setattr(project, "ROOT", root)
    kept = ("build/objects/0a/a.c.o", "build/objects/0a/a.c.d", "build/lib.linux/libvgpu/a.so")
    stale = ("build/.lock", "build/lib.linux/libvgpu/old.py", "libvgpu/old.c", "libvgpu/a.c")
    for name in (*kept, *stale):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_text("old")

    project._bring_up_to_date(copy)

    there = {str(path.relative_to(copy)) for path in copy.rglob("*") if path.is_file()}
    assert there == {*kept, "libvgpu/a.c"}
    assert (copy / "libvgpu/a.c").read_text() == "new"
