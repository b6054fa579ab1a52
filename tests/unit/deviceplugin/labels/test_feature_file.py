"""The feature file: whole at every moment, ours alone, and gone with the agent."""

import os
import stat
from pathlib import Path

import pytest

from deviceplugin.labels.feature_file import FeatureFile, StandardOutput, as_lines
from libvgpu.errors import VgpuError

OURS = {"nvidia.com/vgpu.capable": "true", "nvidia.com/gpu.count": "2"}
THEIRS = "nvidia.com/gpu.count=1\n"
NOW = 1_700_000_000.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "features.d").mkdir()
    return tmp_path / "features.d" / "gfd"


def age(path: Path, seconds: float) -> None:
    os.utime(path, (NOW - seconds, NOW - seconds))


def test_a_line_for_each_label_in_order_for_all_to_read(path: Path) -> None:
    FeatureFile(path).write(OURS)

    assert path.read_text() == "nvidia.com/gpu.count=2\nnvidia.com/vgpu.capable=true\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert [each.name for each in path.parent.iterdir()] == ["gfd"]


def test_who_reads_sees_the_old_file_or_the_new_one(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = FeatureFile(path)
    file.write(OURS)
    seen = []

    def replace(source: Path, target: Path) -> None:
        readable = [each for each in path.parent.iterdir() if not each.name.startswith(".")]
        seen.append([each.read_text() for each in readable])
        source.rename(target)

    monkeypatch.setattr(os, "replace", replace)
    file.write(OURS | {"nvidia.com/gpu.count": "3"})

    assert seen == [[as_lines(OURS)]]
    assert "gpu.count=3" in path.read_text()


def test_a_write_that_fails_leaves_nothing_behind(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)

    with pytest.raises(VgpuError, match=r"gfd cannot be written: No space left on device"):
        FeatureFile(path).write(OURS)
    assert list(path.parent.iterdir()) == []


def test_a_directory_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(VgpuError, match=r"features.d of the feature file does not exist"):
        FeatureFile(tmp_path / "features.d" / "gfd").write(OURS)
    assert list(tmp_path.iterdir()) == []


def test_what_another_program_writes_now_is_left_alone(path: Path) -> None:
    path.write_text(THEIRS)
    age(path, 60)
    file = FeatureFile(path, lambda: NOW)

    with pytest.raises(VgpuError, match="another program writes"):
        file.write(OURS)
    file.end(keep=False)

    assert path.read_text() == THEIRS


def test_what_another_program_left_is_replaced(path: Path) -> None:
    path.write_text(THEIRS)
    age(path, 200)

    FeatureFile(path, lambda: NOW).write(OURS)

    assert path.read_text() == as_lines(OURS)


def test_our_own_file_is_replaced_at_any_age(path: Path) -> None:
    path.write_text("gpu.example.com/vgpu.capable=false\n")
    age(path, 1)

    FeatureFile(path, lambda: NOW).write(OURS)

    assert path.read_text() == as_lines(OURS)


@pytest.mark.parametrize("keep", [False, True])
def test_the_file_goes_with_the_agent_unless_it_is_kept(path: Path, keep: bool) -> None:
    file = FeatureFile(path)
    file.write(OURS)

    file.end(keep)
    assert path.exists() == keep
    file.end(keep)  # a file that is gone is no fault


def test_labels_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    StandardOutput().write(OURS)

    assert capsys.readouterr().out == as_lines(OURS)
