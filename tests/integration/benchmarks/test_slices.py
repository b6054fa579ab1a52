"""Slices made without cffi are those that the host makes; ledger and arbiter are the same C."""

import os
import shutil
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import slices
from libvgpu import region
from libvgpu._native import ffi, lib
from libvgpu.errors import RegionError
from libvgpu.ledger_view import read_ledger
from libvgpu.limits import ComputeMode, ContainerLimits, DeviceLimit, Family
from libvgpu.sim import Machine
from support.lines import expect
from support.shim.slices import Slice
from support.waiting import wait_until

MIB = 1 << 20
DEVICE = DeviceLimit(
    "GPU-0", 3 * MIB + 1, context_bytes=5, core_percent=30, weight=7,
    compute_mode=ComputeMode.ELASTIC,
)  # fmt: skip
LIMITS = ContainerLimits("some-allocation", Family.VGPU, (DEVICE,))

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


def files(directory: Path) -> dict[str, tuple[int, bytes]]:
    """Returns the mode and the content of each file; a FIFO has none."""
    found = {}
    for path in directory.iterdir():
        mode = path.lstat().st_mode
        found[path.name] = mode, path.read_bytes() if stat.S_ISREG(mode) else b""
    return found


def grant(directory: Path) -> Any:
    """Returns a copy of the first device's grant."""
    image = (directory / "limits").read_bytes()
    header = ffi.cast("struct vgpu_limits_header *", ffi.from_buffer(image))
    rows = image[header.grant_offset :]
    return ffi.new("struct vgpu_grant *", ffi.from_buffer("struct vgpu_grant *", rows)[0])


def descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


def test_the_files_are_those_of_the_host_to_the_byte(tmp_path: Path) -> None:
    slices.create(tmp_path / "ours", LIMITS)
    region.create(tmp_path / "theirs", LIMITS)

    assert region.read_limits(tmp_path / "ours").limits == replace(
        LIMITS, devices=(replace(DEVICE, physical_bytes=DEVICE.memory_limit_bytes),)
    )
    assert files(tmp_path / "ours") == files(tmp_path / "theirs")


def test_the_ledger_is_read_as_the_host_reads_it(
    machine: Machine, slice_of: Callable[..., Slice]
) -> None:
    held = slice_of(machine, memory_bytes=64 * MIB)
    holder = held.start(
        "from support.shim.cuda_client import *\n"
        "open_context()\n"
        f"check(driver.cuMemAlloc({5 * MIB}))\n"
        "print('held', flush=True)\n"
        "input()\n"
    )
    expect(holder, "held")

    assert slices.used_bytes(held.directory) == read_ledger(held.directory).used_bytes[0]
    assert slices.used_bytes(held.directory) >= 5 * MIB


def test_the_arbiter_serves_a_slice_until_it_is_stopped(tmp_path: Path) -> None:
    slices.create(tmp_path / "slice", LIMITS)
    before = descriptors()

    with slices.Arbiter() as arbiter:
        arbiter.add(tmp_path / "slice", 0)
        wait_until(lambda: grant(tmp_path / "slice").mode == lib.VGPU_GRANT_FREE, "a grant")

    assert grant(tmp_path / "slice").mode == lib.VGPU_GRANT_NONE
    assert descriptors() == before


def test_a_slice_that_is_damaged_gets_no_arbiter_and_keeps_no_descriptor(tmp_path: Path) -> None:
    slices.create(tmp_path / "slice", LIMITS)
    (tmp_path / "slice/usage").write_bytes(b"x" * 100)
    before = descriptors()

    with slices.Arbiter() as arbiter:
        begun = descriptors()
        with pytest.raises(RegionError, match="slice gets no arbiter: Invalid argument"):
            arbiter.add(tmp_path / "slice", 0)
        with pytest.raises(RegionError, match=r"none/limits cannot be opened: No such file"):
            arbiter.add(tmp_path / "none", 0)
        assert descriptors() == begun

    assert descriptors() == before
    with pytest.raises(RegionError, match=r"usage is damaged: Invalid argument"):
        slices.used_bytes(tmp_path / "slice")


@pytest.mark.parametrize(
    "limits",
    [
        replace(LIMITS, allocation_id="i" * 64),
        replace(LIMITS, devices=(replace(DEVICE, uuid="u" * 64),)),
    ],
)
def test_a_name_that_does_not_fit_is_refused(limits: ContainerLimits, tmp_path: Path) -> None:
    with pytest.raises(RegionError, match=r"'(i{64}|u{64})' is too long for a slice|is too long"):
        slices.create(tmp_path / "slice", limits)

    assert not (tmp_path / "slice").exists()
