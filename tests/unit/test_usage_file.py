"""`usage` is hostile: garbage in it misleads at most about its own row, and never raises oddly."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libvgpu._native import lib
from libvgpu.errors import RegionError
from libvgpu.limits import ContainerLimits, DeviceLimit, Family
from libvgpu.region import create, read_usage

LIMITS = ContainerLimits("alloc-1", Family.VGPU, (DeviceLimit("GPU-a", 1 << 30),))
HEADER_BYTES = 256


def test_a_new_file_is_empty_and_fully_allocated(tmp_path: Path) -> None:
    create(tmp_path / "slice", LIMITS)

    usage = read_usage(tmp_path / "slice")

    assert usage.allocation_id == "alloc-1"
    assert usage.processes == ()
    assert usage.devices[0].used_bytes == 0
    status = (tmp_path / "slice/usage").stat()
    assert status.st_blocks * 512 >= status.st_size


@given(st.binary(min_size=64, max_size=512), st.integers(0, 190_000))
@settings(deadline=None, max_examples=60)
def test_garbage_is_bounded_or_refused(
    tmp_path_factory: pytest.TempPathFactory, garbage: bytes, at: int
) -> None:
    directory = tmp_path_factory.mktemp("region") / "slice"
    create(directory, LIMITS)
    path = directory / "usage"
    image = bytearray(path.read_bytes())
    image[at : at + len(garbage)] = garbage
    path.write_bytes(image[: path.stat().st_size])

    try:
        usage = read_usage(directory)
    except RegionError:
        return
    assert 0 <= usage.devices[0].used_bytes <= lib.LEDGER_MAX_BYTES
    assert len(usage.processes) <= lib.VGPU_SLOT_COUNT
    for process in usage.processes:
        assert process.command.isprintable() or process.command == ""
        assert 0 <= process.devices[0].gpu_time_ns < 1 << 63


@pytest.mark.parametrize("size", [0, 100, HEADER_BYTES, 10_000, 1 << 20])
def test_a_file_of_another_size_is_refused(tmp_path: Path, size: int) -> None:
    create(tmp_path / "slice", LIMITS)
    os.truncate(tmp_path / "slice/usage", size)

    with pytest.raises(RegionError, match="damaged"):
        read_usage(tmp_path / "slice")


def test_a_link_in_its_place_is_refused(tmp_path: Path) -> None:
    create(tmp_path / "slice", LIMITS)
    (tmp_path / "slice/usage").rename(tmp_path / "elsewhere")
    (tmp_path / "slice/usage").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(RegionError, match="cannot be read"):
        read_usage(tmp_path / "slice")


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir], ids=["FIFO", "directory"])
def test_what_is_no_file_is_refused_at_once(tmp_path: Path, make: Callable[[Path], None]) -> None:
    create(tmp_path / "slice", LIMITS)
    (tmp_path / "slice/usage").unlink()
    make(tmp_path / "slice/usage")

    with pytest.raises(RegionError, match="no regular file"):
        read_usage(tmp_path / "slice")
