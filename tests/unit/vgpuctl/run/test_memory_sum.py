"""The memory of `vgpuctl run` on one GPU never sums to more than the GPU."""

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from libvgpu import ownership
from libvgpu.errors import AllocationRefused
from libvgpu.limits import DeviceLimit
from support.made_slices import make_slice
from vgpuctl.run import core_sum, memory_sum
from vgpuctl.run.requests import GpuRequest

A, B = "GPU-a", "GPU-b"
GIB = 1 << 30
WHOLE = {A: 16 * GIB, B: 8 * GIB}


def device(uuid: str, size: int, physical: int = 0) -> DeviceLimit:
    return DeviceLimit(uuid, size, physical_bytes=physical, core_percent=10)


@pytest.fixture
def living(tmp_path: Path) -> Iterator[contextlib.ExitStack]:
    """Keeps slices of living `vgpuctl run` (`alive`) until the test ends."""
    with contextlib.ExitStack() as owners:
        yield owners


def alive(owners: contextlib.ExitStack, run_dir: Path, *devices: DeviceLimit) -> str:
    name, _ = owners.enter_context(ownership.owned_directory(run_dir))
    make_slice(run_dir, name, *devices, source="run")
    return name


def fitted(run_dir: Path, size: int | None, uuid: str = A) -> DeviceLimit:
    asked = device(uuid, WHOLE[uuid] if size is None else size)
    (found,) = memory_sum.fitted(run_dir, [GpuRequest("0", size)], [asked], WHOLE)
    return found


def test_what_is_left_is_given_to_the_byte(tmp_path: Path, living: contextlib.ExitStack) -> None:
    alive(living, tmp_path, device(A, 5 * GIB))
    make_slice(tmp_path, "agents", device(A, 3 * GIB), device(B, GIB))

    assert fitted(tmp_path, 8 * GIB).memory_limit_bytes == 8 * GIB
    assert fitted(tmp_path, None).memory_limit_bytes == 8 * GIB
    assert fitted(tmp_path, None).physical_bytes == 8 * GIB
    assert fitted(tmp_path, None, B).memory_limit_bytes == 7 * GIB
    with pytest.raises(AllocationRefused) as caught:
        fitted(tmp_path, 8 * GIB + 1)
    assert caught.value.message == (
        f"memory 8 GiB (8589934593 bytes) of GPU GPU-a cannot be given: 2 slices of {tmp_path} "
        "have 8 GiB of its 16 GiB, so at most 8 GiB (8589934592 bytes) are allowed"
    )


def test_with_nothing_left_nothing_is_offered(tmp_path: Path, living: contextlib.ExitStack) -> None:
    alive(living, tmp_path, device(A, 16 * GIB))

    for size in (1, None):
        with pytest.raises(AllocationRefused, match="so none is left"):
            fitted(tmp_path, size)


def test_a_killed_run_has_nothing_and_overcommitted_memory_counts_once(tmp_path: Path) -> None:
    make_slice(tmp_path, "run-1-dead", device(A, 16 * GIB), source="run")
    make_slice(tmp_path, "agents", device(A, 16 * GIB, physical=4 * GIB))

    assert fitted(tmp_path, None).memory_limit_bytes == 12 * GIB


def test_a_slice_that_changes_is_not_in_its_own_way_and_unseen_gpus_are_not_judged(
    tmp_path: Path, living: contextlib.ExitStack
) -> None:
    mine = alive(living, tmp_path, device(A, 6 * GIB))
    alive(living, tmp_path, device(A, 6 * GIB))

    memory_sum.require_free_memory(tmp_path, [device(A, 10 * GIB)], WHOLE, mine)
    memory_sum.require_free_memory(tmp_path, [device(A, 99 * GIB)], {A: None}, mine)
    with pytest.raises(AllocationRefused, match="at most 10 GiB"):
        memory_sum.require_free_memory(tmp_path, [device(A, 10 * GIB + 1)], WHOLE, mine)


def test_of_many_that_ask_at_once_only_those_that_fit_get_in(
    tmp_path: Path, living: contextlib.ExitStack
) -> None:
    start, refused = threading.Barrier(6), []

    def ask() -> None:
        start.wait()
        try:
            with core_sum.admitting(tmp_path):
                alive(living, tmp_path, fitted(tmp_path, 5 * GIB))
        except AllocationRefused:
            refused.append(1)

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(refused) == 3
