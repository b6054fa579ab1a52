"""A running slice of `vgpuctl run` is lowered, raised as far as its owner may, and set back."""

from dataclasses import replace
from pathlib import Path

import pytest

from deviceplugin.model.overrides import LimitChange, Override
from deviceplugin.policy.limits.changes import changed_limits
from libvgpu import allocation_dirs, region
from libvgpu.errors import AllocationRefused, RegionError, UsageError
from libvgpu.limits import ComputeMode, ContainerLimits, DeviceLimit, Family, on_left_over
from support.made_slices import make_slice
from vgpuctl.run import limits as run_limits

GIB = 1 << 30
A, B = "GPU-a", "GPU-b"
GPU_BYTES = 16 * GIB
STRICT, OFF = ComputeMode.STRICT, ComputeMode.OFF


def device(uuid: str, percent: int = 40, mode: ComputeMode = STRICT) -> DeviceLimit:
    return DeviceLimit(
        uuid,
        8 * GIB,
        physical_bytes=8 * GIB,
        context_bytes=77,
        core_percent=percent,
        compute_mode=mode,
        weight=percent,
    )


def memory_of(uuid: str) -> int | None:
    return GPU_BYTES if uuid == A else None


def change(found: allocation_dirs.AllocationDir, override: Override) -> LimitChange:
    run_dir = found.directory.parents[1]
    return run_limits.set_limits(run_dir, found, override, memory_of)


def clear(found: allocation_dirs.AllocationDir) -> LimitChange:
    return run_limits.clear_limits(found.directory.parents[1], found, memory_of)


def held(found: allocation_dirs.AllocationDir) -> tuple[DeviceLimit, ...]:
    return region.read_limits(found.directory).limits.devices


def test_what_is_named_changes_on_every_gpu_and_the_rest_stays(tmp_path: Path) -> None:
    one = make_slice(tmp_path, "one", device(A), device(B, 30), source="run")
    inode = (one.directory / "limits").stat().st_ino

    done = change(one, Override(core_percent=20, memory_bytes=GIB))

    assert done.before.devices == (device(A), device(B, 30))
    assert done.after.devices == held(one)
    assert [(d.core_percent, d.weight, d.memory_limit_bytes) for d in held(one)] == [
        (20, 20, GIB),
        (20, 20, GIB),
    ]
    assert [(d.physical_bytes, d.context_bytes, d.compute_mode) for d in held(one)] == [
        (GIB, 77, STRICT),
        (GIB, 77, STRICT),
    ]
    assert (one.directory / "limits").stat().st_ino == inode


def test_clearing_goes_back_to_what_it_was_made_with_however_often_it_was_set(
    tmp_path: Path,
) -> None:
    one = make_slice(tmp_path, "one", device(A), device(A + "2", 30, OFF), source="run")
    before = held(one)
    change(one, Override(compute=ComputeMode.ELASTIC))
    change(one, Override(core_percent=5, memory_bytes=GIB))

    done = clear(one)

    assert held(one) == done.after.devices == before
    assert clear(one).after == clear(one).before
    change(one, Override(memory_bytes=2 * GIB))
    clear(one)
    assert held(one) == before


def test_it_rises_as_far_as_the_gpu_has_it(tmp_path: Path) -> None:
    one = make_slice(tmp_path, "one", device(A, 40), source="run")
    make_slice(tmp_path, "two", device(A, 30), source="run")

    change(one, Override(core_percent=70, memory_bytes=GPU_BYTES))

    assert (held(one)[0].core_percent, held(one)[0].memory_limit_bytes) == (70, GPU_BYTES)
    with pytest.raises(AllocationRefused, match=r"core 71 of GPU GPU-a cannot be given: 1 slice"):
        change(one, Override(core_percent=71))
    with pytest.raises(AllocationRefused, match=r"memory 16 GiB .* is more than GPU GPU-a has"):
        change(one, Override(memory_bytes=GPU_BYTES + 1))
    assert held(one)[0].core_percent == 70


def test_what_was_given_up_and_taken_by_another_does_not_come_back(tmp_path: Path) -> None:
    one = make_slice(tmp_path, "one", device(A, 60), source="run")
    change(one, Override(core_percent=20))
    make_slice(tmp_path, "two", device(A, 70), source="run")

    with pytest.raises(AllocationRefused, match="at most 30 % are allowed"):
        clear(one)

    assert held(one)[0].core_percent == 20
    allocation_dirs.remove(tmp_path / "allocations" / "two")
    assert clear(one).after.devices[0].core_percent == 60


def test_lowering_is_never_refused_for_what_others_have(tmp_path: Path) -> None:
    one = make_slice(tmp_path, "one", device(A, 60), source="run")
    make_slice(tmp_path, "two", device(A, 90), source="run")  # more than there is

    change(one, Override(core_percent=50))

    assert held(one)[0].core_percent == 50


def test_memory_of_a_gpu_nobody_sees_only_falls(tmp_path: Path) -> None:
    one = make_slice(tmp_path, "one", device(B), source="run")

    change(one, Override(memory_bytes=GIB))

    change(one, Override(memory_bytes=8 * GIB))  # what it was made with it had once
    with pytest.raises(AllocationRefused, match="GPU-b is not seen from here"):
        change(one, Override(memory_bytes=8 * GIB + 1))


def test_a_slice_without_a_share_gets_one_only_where_it_is_free(tmp_path: Path) -> None:
    one = make_slice(tmp_path, "one", device(A, 100, OFF), source="run")
    make_slice(tmp_path, "two", device(A, 30), source="run")

    with pytest.raises(UsageError, match="core 20 does nothing for a slice with compute off"):
        change(one, Override(core_percent=20))
    with pytest.raises(AllocationRefused, match="core 100 of GPU GPU-a"):
        change(one, Override(compute=ComputeMode.STRICT))
    change(one, Override(core_percent=70, compute=ComputeMode.STRICT))
    assert (held(one)[0].core_percent, held(one)[0].compute_mode) == (70, STRICT)

    clear(one)

    assert (held(one)[0].core_percent, held(one)[0].compute_mode) == (100, OFF)


def test_a_slice_without_reserved_compute_gets_some_and_goes_back(tmp_path: Path) -> None:
    one = make_slice(tmp_path, "one", on_left_over(device(A)), source="run")
    before = held(one)
    make_slice(tmp_path, "two", device(A, 99), source="run")

    with pytest.raises(UsageError, match="compute strict holds a share, and this slice has none"):
        change(one, Override(compute=ComputeMode.STRICT))
    with pytest.raises(AllocationRefused, match="core 2 of GPU GPU-a cannot be given: 1 slice"):
        change(one, Override(core_percent=2))
    change(one, Override(memory_bytes=GIB))
    assert held(one)[0].reserved_percent == 0
    change(one, Override(core_percent=1))
    assert held(one)[0].reserved_percent == 1
    change(one, Override(compute=ComputeMode.STRICT))
    assert (held(one)[0].core_percent, held(one)[0].compute_mode) == (1, STRICT)

    done = clear(one)

    assert held(one) == before
    (told,) = changed_limits("one", done).devices
    assert (told.old.core_percent, told.new.core_percent) == (1, 0)


def test_without_a_share_at_all_and_back_to_what_is_left_over(tmp_path: Path) -> None:
    one = make_slice(tmp_path, "one", on_left_over(device(A)), source="run")
    before = held(one)

    change(one, Override(compute=ComputeMode.OFF))
    assert held(one)[0].compute_mode is OFF
    with pytest.raises(UsageError, match="give --core PERCENT too"):
        change(one, Override(compute=ComputeMode.STRICT))
    change(one, Override(compute=ComputeMode.ELASTIC))

    assert held(one) == before


def test_a_slice_that_ended_is_said_to_have(tmp_path: Path) -> None:
    one = make_slice(tmp_path, "one", device(A), source="run")
    allocation_dirs.remove(one.directory)

    with pytest.raises(RegionError, match="cannot be opened"):
        change(one, Override(core_percent=5))


@pytest.mark.parametrize("content", ["[{", '[{"compute": "lax"}]'])
def test_a_damaged_memory_of_the_request_changes_nothing(tmp_path: Path, content: str) -> None:
    one = make_slice(tmp_path, "one", device(A), source="run")
    change(one, Override(core_percent=5))
    (one.directory / "asked.json").write_text(content)

    with pytest.raises(RegionError, match=r"asked\.json cannot be read"):
        clear(one)

    assert held(one)[0].core_percent == 5


def test_memory_that_others_were_promised_meanwhile_is_not_given_back(tmp_path: Path) -> None:
    one = make_slice(tmp_path, "one", device(A), source="run")
    change(one, Override(memory_bytes=GIB))
    two = make_slice(tmp_path, "two", device(A), device(A + "2")).directory
    change(one, Override(memory_bytes=8 * GIB))  # 16 GiB in all
    change(one, Override(memory_bytes=GIB))

    with pytest.raises(AllocationRefused, match="at most 8 GiB"):
        change(one, Override(memory_bytes=8 * GIB + 1))
    limits = region.read_limits(two).limits.devices
    more = (replace(limits[0], memory_limit_bytes=9 * GIB, physical_bytes=9 * GIB), limits[1])
    region.write_limits(two, ContainerLimits("two", Family.VGPU, more))
    with pytest.raises(AllocationRefused, match="at most 7 GiB"):
        clear(one)
    assert held(one)[0].memory_limit_bytes == GIB
