"""Ready-made files: a container gets them where nothing new can be made."""

from pathlib import Path

import pytest

from deviceplugin.store.spare_files import SpareFiles
from libvgpu import region
from libvgpu.allocation_dirs import AllocationMeta, read_meta, write_meta
from libvgpu.errors import RegionError
from libvgpu.limits import ContainerLimits, DeviceLimit, Family

LIMITS = ContainerLimits(
    "abc", Family.MPS, (DeviceLimit("GPU-a", 5 << 30, 5 << 30, core_percent=20),)
)


@pytest.fixture
def spare(tmp_path: Path) -> SpareFiles:
    files = SpareFiles(tmp_path, count=3)
    files.prepare()
    files.fill()
    return files


def no_room(*args: object, **more: object) -> None:
    raise RegionError("no space left")


def test_a_set_becomes_a_containers_files_without_new_room(
    spare: SpareFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as full:
        full.setattr(region, "create", no_room)
        made = spare.make(LIMITS)

    room = ["meta.json", "meta.json.new"]
    assert sorted(p.name for p in made.iterdir()) == ["limits", "lock", *room, "ring", "usage"]
    assert region.read_limits(made).limits == LIMITS
    fresh = tmp_path / "fresh"
    region.create(fresh, LIMITS)
    for name in ("limits", "usage"):
        assert (made / name).read_bytes() == (fresh / name).read_bytes()
        assert (made / name).stat().st_mode == (fresh / name).stat().st_mode


def test_whose_a_set_is_takes_no_new_room_and_gives_none_up(spare: SpareFiles) -> None:
    made = spare.make(LIMITS)
    files = {(p.stat().st_ino, p.stat().st_blocks) for p in made.glob("meta*")}
    assert len(files) == 2

    for pod in ("first", "second", "third"):
        meta = AllocationMeta("abc", "mps", "kubelet", 1.5, pod=pod)
        write_meta(made, meta)
        assert read_meta(made) == meta
        assert {(p.stat().st_ino, p.stat().st_blocks) for p in made.glob("meta*")} == files


def test_a_set_of_a_version_that_made_no_room_is_made_again(
    spare: SpareFiles, tmp_path: Path
) -> None:
    old = next((tmp_path / "spare").iterdir())
    (old / "meta.json").unlink()

    again = SpareFiles(tmp_path, count=3)
    again.prepare()
    again.fill()

    assert not old.exists()
    assert len([*(tmp_path / "spare").iterdir()]) == 3


def made_without_room(spare: SpareFiles, patch: pytest.MonkeyPatch) -> int:
    """How many containers get files although nothing new can be made."""
    for count in range(10):
        with patch.context() as full:
            full.setattr(region, "create", no_room)
            try:
                spare.make(LIMITS)
            except RegionError:
                return count
    raise AssertionError("sets come from nowhere")


def test_sets_are_used_up_and_made_again(
    spare: SpareFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert made_without_room(spare, monkeypatch) == 3

    spare.fill()

    assert made_without_room(spare, monkeypatch) == 3


def test_the_next_agent_finds_whole_sets_and_clears_half_made_ones(
    spare: SpareFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    half = tmp_path / "spare" / "new-1"
    half.mkdir()
    (half / "usage").write_bytes(b"")
    (next(p for p in (tmp_path / "spare").iterdir() if p != half) / "usage").unlink()

    again = SpareFiles(tmp_path, count=3)
    again.prepare()

    assert not half.exists()
    assert made_without_room(again, monkeypatch) == 2, "the set without its `usage` is passed over"


def test_several_gpus_have_files_of_their_own(spare: SpareFiles) -> None:
    two = ContainerLimits("abc", Family.VGPU, (DeviceLimit("GPU-a", 1), DeviceLimit("GPU-b", 1)))

    assert len(region.read_limits(spare.make(two)).limits.devices) == 2


@pytest.mark.parametrize("count", [2, 3, 4])
def test_a_set_for_all_gpus_becomes_the_files_of_some_without_new_room(
    spare: SpareFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    spare.most_devices = 4
    spare.fill()
    again = SpareFiles(tmp_path, count=3)
    again.prepare()
    some = ContainerLimits("abc", Family.VGPU, tuple(DeviceLimit(f"G{n}", 1) for n in range(count)))
    fresh = tmp_path / "fresh"
    region.create(fresh, some)

    monkeypatch.setattr(region, "create", no_room)
    made = again.make(some)

    files = [p for p in made.iterdir() if not p.name.startswith("meta")]
    assert {p.name: p.lstat().st_size for p in files} == {
        p.name: p.lstat().st_size for p in fresh.iterdir()
    }
    for name in ("limits", "usage"):
        assert (made / name).read_bytes() == (fresh / name).read_bytes()
    again.make(some)
    with pytest.raises(RegionError):
        again.make(some)
    again.make(LIMITS)  # those for one are untouched


def test_a_full_disk_is_said_once_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    files = SpareFiles(tmp_path, count=2)
    files.prepare()
    monkeypatch.setattr(region, "create", no_room)
    said: list[str] = []
    monkeypatch.setattr(
        "deviceplugin.store.spare_files.event", lambda _, text, **more: said.append(text)
    )

    files.fill()
    files.fill()

    assert len(said) == 1
    assert list((tmp_path / "spare").iterdir()) == []
    monkeypatch.undo()
    files.fill()
    assert len(list((tmp_path / "spare").iterdir())) == 2
