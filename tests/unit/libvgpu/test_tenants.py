"""Which slices share a GPU is read from their own `limits`, and every change of it is seen."""

import os
import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest

from libvgpu import region
from libvgpu.limits import ComputeMode, ContainerLimits, DeviceLimit, Family
from libvgpu.tenants import Tenant, TenantWatch

A, B = "GPU-a", "GPU-b"
GIB = 1 << 30


def device(uuid: str, percent: int, mode: ComputeMode = ComputeMode.STRICT) -> DeviceLimit:
    return DeviceLimit(uuid, GIB, core_percent=percent, compute_mode=mode, weight=percent)


def make(run_dir: Path, name: str, *devices: DeviceLimit, family: Family = Family.VGPU) -> Path:
    (run_dir / "allocations").mkdir(exist_ok=True)
    directory = run_dir / "allocations" / name
    region.create(directory, ContainerLimits(name, family, devices))
    return directory


def seen(watch: TenantWatch) -> dict[str, list[tuple[str, int]]]:
    return {
        uuid: [(t.directory.name, t.device_index) for t in tenants]
        for uuid, tenants in watch.look().items()
    }


def test_slices_are_found_by_gpu_with_place(tmp_path: Path) -> None:
    make(tmp_path, "one", device(A, 30))
    make(tmp_path, "two", device(B, 10), device(A, 70))

    assert seen(TenantWatch(tmp_path)) == {
        A: [("one", 0), ("two", 1)],
        B: [("two", 0)],
    }


def test_no_run_directory_is_no_slices(tmp_path: Path) -> None:
    assert TenantWatch(tmp_path / "none").look() == {}


def test_only_slices_divided_in_time_are_tenants(tmp_path: Path) -> None:
    make(tmp_path, "mps", device(A, 30), family=Family.MPS)
    make(tmp_path, "off", device(A, 100, ComputeMode.OFF))
    old = make(tmp_path, "old", device(A, 30))
    (old / "ring").unlink()  # as a slice made before there were rings
    (make(tmp_path, "damaged", device(A, 30)) / "limits").chmod(0o600)
    (tmp_path / "allocations/damaged/limits").write_bytes(b"x" * 4096)
    (tmp_path / "allocations/half").mkdir()
    (tmp_path / "allocations/half/limits").touch()

    assert TenantWatch(tmp_path).look() == {}


def test_a_ring_that_comes_later_makes_a_tenant(tmp_path: Path) -> None:
    directory = make(tmp_path, "old", device(A, 30))
    (directory / "ring").unlink()
    watch = TenantWatch(tmp_path)
    assert seen(watch) == {}

    region.make_ring(directory)

    assert seen(watch) == {A: [("old", 0)]}


def test_a_look_sees_what_came_went_and_changed(tmp_path: Path) -> None:
    watch = TenantWatch(tmp_path)
    one = make(tmp_path, "one", device(A, 30))
    assert seen(watch) == {A: [("one", 0)]}

    make(tmp_path, "two", device(A, 70))
    region.write_limits(one, ContainerLimits("one", Family.VGPU, (device(A, 20),)))
    assert seen(watch) == {A: [("one", 0), ("two", 0)]}

    off = replace(device(A, 20), compute_mode=ComputeMode.OFF)
    region.write_limits(one, ContainerLimits("one", Family.VGPU, (off,)))
    assert seen(watch) == {A: [("two", 0)]}

    shutil.rmtree(tmp_path / "allocations/two")
    assert seen(watch) == {}


def test_a_slice_made_anew_under_its_old_name_is_another(tmp_path: Path) -> None:
    watch = TenantWatch(tmp_path)
    directory = make(tmp_path, "one", device(A, 30))
    keeps_the_inode = open(directory / "limits", "rb")  # noqa: SIM115 — so that it is not reused
    (before,) = watch.look()[A]
    shutil.rmtree(directory)

    make(tmp_path, "one", device(A, 30))

    (after,) = watch.look()[A]
    assert after.inode != before.inode
    keeps_the_inode.close()


@pytest.mark.parametrize(
    ("percent", "mode", "may_borrow"),
    [
        (30, ComputeMode.STRICT, False),
        (30, ComputeMode.ELASTIC, True),
        (100, ComputeMode.ELASTIC, False),
        (0, ComputeMode.STRICT, True),
    ],
)
def test_who_may_borrow(tmp_path: Path, percent: int, mode: ComputeMode, may_borrow: bool) -> None:
    make(tmp_path, "one", device(A, percent, mode))

    (tenant,) = TenantWatch(tmp_path).look()[A]

    assert tenant.may_borrow is may_borrow


def settle(tmp_path: Path, watch: TenantWatch) -> dict[str, list[Tenant]]:
    """Makes the directory look unchanged for long, and looks."""
    long_ago_ns = time.time_ns() - 60 * 10**9
    os.utime(tmp_path / "allocations", ns=(long_ago_ns, long_ago_ns))
    return watch.look()


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_while_nothing_changes_the_same_is_returned_and_everything_else_is_seen(
    tmp_path: Path,
) -> None:
    watch, before = TenantWatch(tmp_path), descriptors()
    first = make(tmp_path, "first", device(A, 30))
    found = settle(tmp_path, watch)
    assert watch.look() is found

    off = device(A, 30, ComputeMode.OFF)
    region.write_limits(first, ContainerLimits("first", Family.VGPU, (off,)))
    assert watch.look() == {}
    found = settle(tmp_path, watch)
    assert watch.look() is found

    second = make(tmp_path, "second", device(B, 30))
    assert set(watch.look()) == {B}
    settle(tmp_path, watch)
    shutil.rmtree(second)
    assert watch.look() == {}
    watch.close()
    assert descriptors() == before


def test_what_is_not_whole_is_looked_at_again(tmp_path: Path) -> None:
    watch = TenantWatch(tmp_path)
    directory = make(tmp_path, "late", device(A, 30))
    (directory / "ring").unlink()
    assert settle(tmp_path, watch) == {}

    region.make_ring(directory)
    assert set(watch.look()) == {A}
    watch.close()
