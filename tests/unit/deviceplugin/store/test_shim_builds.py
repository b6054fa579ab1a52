"""The builds of the shim that a node keeps: the present one, and those that containers name."""

from pathlib import Path

import pytest

from deviceplugin.store.held_files import HeldFiles
from deviceplugin.store.shim_builds import ShimBuilds, container_shim_path
from libvgpu import artifacts

OLD, NAMED = "0123456789abcdef", "fedcba9876543210"


@pytest.fixture
def builds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ShimBuilds:
    (tmp_path / "libvgpu.so").write_bytes(b"a build")
    monkeypatch.setattr(artifacts, "SHIM_PATH", tmp_path / "libvgpu.so")
    monkeypatch.setattr(artifacts, "build_id", lambda path: "aa55aa55aa55")
    builds = ShimBuilds(tmp_path / "state", HeldFiles())
    builds.install()
    for build in (OLD, NAMED):
        builds.directory(build).mkdir()
        for name in ("libvgpu.so", "ld.so.preload"):
            (builds.directory(build) / name).write_text(build)
    return builds


def test_what_is_installed_is_whole_and_names_itself(builds: ShimBuilds) -> None:
    preload = builds.directory(builds.present) / "ld.so.preload"

    library = preload.with_name("libvgpu.so")
    assert builds.is_whole(builds.present)
    assert (library.read_bytes(), library.stat().st_mode & 0o777) == (b"a build", 0o755)
    assert preload.read_text() == container_shim_path(builds.present) + "\n"
    preload.unlink()
    assert not builds.is_whole(builds.present)
    assert not builds.is_whole("beef")


def test_only_a_build_that_nobody_names_goes(builds: ShimBuilds) -> None:
    (builds.directory(OLD).parent / "notes").mkdir()  # not ours

    gone = builds.remove_others({NAMED, ""})

    assert gone == [OLD]
    assert not builds.directory(OLD).exists()
    assert builds.is_whole(NAMED) and builds.is_whole(builds.present)
    assert (builds.directory(OLD).parent / "notes").exists()
