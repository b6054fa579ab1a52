"""`limits`: what is written is what is read, a torn or damaged copy never is."""

import dataclasses
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libvgpu._native import ffi, lib
from libvgpu.errors import DevicesDifferError, RegionError
from libvgpu.limits import ComputeMode, ContainerLimits, DeviceLimit, Family
from libvgpu.region import create, has_ring, make_ring, read_limits, ring_path, write_limits

GIB = 1 << 30
ONE = ContainerLimits(
    "alloc-1",
    Family.VGPU,
    (DeviceLimit("GPU-a", 8 * GIB, context_bytes=5 << 20, core_percent=50),),
)

devices = st.builds(
    DeviceLimit,
    uuid=st.from_regex(r"GPU-[0-9a-f]{8}", fullmatch=True),
    memory_limit_bytes=st.integers(0, (1 << 42) - 1),
    physical_bytes=st.integers(1, (1 << 42) - 1),
    context_bytes=st.integers(0, GIB),
    unaccounted_bytes=st.integers(0, GIB),
    core_percent=st.integers(0, 100),
    compute_mode=st.sampled_from(ComputeMode),
    weight=st.integers(1, 100),
    mps_thread_percentage=st.integers(0, 100),
    mps_pinned_bytes=st.integers(0, GIB),
    mps_pipe_directory=st.sampled_from(["", "/run/vgpu/mps"]),
)


@given(st.sampled_from(Family), st.lists(devices, min_size=1, max_size=8))
def test_what_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, family: Family, listed: list[DeviceLimit]
) -> None:
    directory = tmp_path_factory.mktemp("region") / "slice"
    limits = ContainerLimits("alloc-1", family, tuple(listed))

    create(directory, limits)

    assert read_limits(directory).limits == limits


def test_files_have_the_modes_of_the_contract(tmp_path: Path) -> None:
    create(tmp_path / "slice", ONE)

    modes = {p.name: p.stat().st_mode & 0o777 for p in (tmp_path / "slice").iterdir()}

    assert modes == {"limits": 0o444, "usage": 0o666, "ring": 0o666, "lock": 0o600}
    assert (tmp_path / "slice").stat().st_mode & 0o777 == 0o700


def test_each_device_has_a_ring_of_its_own(tmp_path: Path) -> None:
    devices = tuple(dataclasses.replace(ONE.devices[0], uuid=f"GPU-{i}") for i in range(3))
    create(tmp_path / "slice", dataclasses.replace(ONE, devices=devices))

    rings = [ring_path(tmp_path / "slice", index) for index in range(3)]

    assert [ring.name for ring in rings] == ["ring", "ring.1", "ring.2"]
    assert all(ring.is_fifo() and ring.stat().st_mode & 0o777 == 0o666 for ring in rings)


def test_an_older_slice_has_one_ring_for_all_its_devices(tmp_path: Path) -> None:
    create(tmp_path / "slice", ONE)

    assert ring_path(tmp_path / "slice", 1) == tmp_path / "slice/ring"


def test_the_umask_narrows_no_file_and_the_ring_is_a_fifo(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        create(tmp_path / "slice", ONE)
    finally:
        os.umask(before)

    assert (tmp_path / "slice/ring").is_fifo()
    for name in ("usage", "ring"):
        assert (tmp_path / "slice" / name).stat().st_mode & 0o777 == 0o666


def test_a_slice_that_cannot_be_made_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, mode: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "mkfifo", full)

    with pytest.raises(RegionError, match="No space left"):
        create(tmp_path / "slice", ONE)

    assert list(tmp_path.iterdir()) == []


def test_a_ring_is_added_to_an_older_slice_and_kept(tmp_path: Path) -> None:
    directory = tmp_path / "slice"
    create(directory, ONE)
    (directory / "ring").unlink()
    assert not has_ring(directory)
    assert read_limits(directory).limits.allocation_id == ONE.allocation_id

    make_ring(directory)
    inode = (directory / "ring").stat().st_ino
    make_ring(directory)

    assert (directory / "ring").stat().st_ino == inode


def test_what_is_no_fifo_is_no_ring(tmp_path: Path) -> None:
    create(tmp_path / "slice", ONE)
    (tmp_path / "slice/ring").unlink()
    (tmp_path / "slice/ring").touch()

    assert not has_ring(tmp_path / "slice")
    with pytest.raises(FileExistsError):
        make_ring(tmp_path / "slice")


def test_a_change_keeps_the_inode_and_raises_the_generation(tmp_path: Path) -> None:
    directory = tmp_path / "slice"
    create(directory, ONE)
    inode = (directory / "limits").stat().st_ino
    said = read_limits(directory).limits
    lowered = dataclasses.replace(ONE.devices[0], memory_limit_bytes=GIB)

    before = write_limits(directory, dataclasses.replace(ONE, devices=(lowered,)))

    assert (before.limits, before.generation) == (said, 1)
    assert read_limits(directory).generation == 2
    assert read_limits(directory).limits.devices[0].memory_limit_bytes == GIB
    assert (directory / "limits").stat().st_ino == inode
    assert (directory / "limits").stat().st_mode & 0o777 == 0o444


def test_what_says_the_same_is_not_written(tmp_path: Path) -> None:
    create(tmp_path / "slice", ONE)

    said = read_limits(tmp_path / "slice").limits
    assert write_limits(tmp_path / "slice", said).limits == said
    assert read_limits(tmp_path / "slice").generation == 1


def test_a_change_that_moves_a_device_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    directory = tmp_path / "slice"
    create(directory, ONE)
    other = dataclasses.replace(ONE.devices[0], uuid="GPU-b")

    with pytest.raises(DevicesDifferError, match="keep them first"):
        write_limits(directory, dataclasses.replace(ONE, devices=(other,)))

    assert read_limits(directory).generation == 1


def test_a_writer_killed_before_the_flip_leaves_the_old_copy(tmp_path: Path) -> None:
    directory = tmp_path / "slice"
    create(directory, ONE)
    image = bytearray((directory / "limits").read_bytes())
    view = ffi.from_buffer("unsigned char[]", image, require_writable=True)
    header = ffi.cast("struct vgpu_limits_header *", view)
    idle = header.copy_offset[(header.active_generation + 1) & 1]

    # GIVEN a writer that died while it filled the idle copy
    image[idle : idle + header.copy_bytes // 2] = os.urandom(header.copy_bytes // 2)

    head = ffi.new("struct vgpu_limits_copy *")
    devices = ffi.new("struct vgpu_device_limit[]", 1)
    assert lib.limits_read(view, head, devices, 1) == 0
    assert devices[0].memory_limit_bytes == 8 * GIB


@pytest.mark.parametrize("at", [0, 8, 16, 20, 40, 128, 330, 400])
def test_a_damaged_file_is_refused_in_a_sentence(tmp_path: Path, at: int) -> None:
    directory = tmp_path / "slice"
    create(directory, ONE)
    path = directory / "limits"
    image = bytearray(path.read_bytes())
    # the active copy is copy 1; damage there and in the header
    at = at if at <= 128 else at + (len(image) - 320) // 2 - 10
    image[at] ^= 0xFF
    path.chmod(0o644)
    path.write_bytes(image)

    with pytest.raises(RegionError, match="damaged"):
        read_limits(directory)


@pytest.mark.parametrize("size", [0, 1, 255, 256, 1000])
def test_a_truncated_file_is_refused(tmp_path: Path, size: int) -> None:
    directory = tmp_path / "slice"
    create(directory, ONE)
    (directory / "limits").chmod(0o644)
    os.truncate(directory / "limits", size)

    with pytest.raises(RegionError):
        read_limits(directory)


def test_a_name_that_is_too_long_leaves_nothing_behind(tmp_path: Path) -> None:
    limits = dataclasses.replace(ONE, allocation_id="x" * 64)

    with pytest.raises(RegionError, match="too long"):
        create(tmp_path / "slice", limits)

    assert list(tmp_path.iterdir()) == []


def as_version(path: Path, number: int) -> None:
    image = bytearray(path.read_bytes())
    head = ffi.from_buffer("unsigned char[]", image, require_writable=True)
    ffi.cast("struct vgpu_limits_header *", head).layout_version = number
    path.chmod(0o644)
    path.write_bytes(image)


def test_a_file_of_the_last_layout_is_changed_as_it_is(tmp_path: Path) -> None:
    create(tmp_path / "slice", ONE)
    as_version(tmp_path / "slice/limits", lib.VGPU_LAYOUT_VERSION - 1)
    changed = dataclasses.replace(
        ONE, devices=(dataclasses.replace(ONE.devices[0], core_percent=30),)
    )

    write_limits(tmp_path / "slice", changed)

    assert read_limits(tmp_path / "slice").limits.devices[0].core_percent == 30
    head = ffi.from_buffer("unsigned char[]", (tmp_path / "slice/limits").read_bytes())
    version = ffi.cast("struct vgpu_limits_header *", head).layout_version
    assert version == lib.VGPU_LAYOUT_VERSION - 1


def test_a_file_of_a_later_layout_is_refused_in_a_sentence(tmp_path: Path) -> None:
    create(tmp_path / "slice", ONE)
    as_version(tmp_path / "slice/limits", lib.VGPU_LAYOUT_VERSION + 1)

    with pytest.raises(RegionError, match="of a layout version that this version does not know"):
        read_limits(tmp_path / "slice")
