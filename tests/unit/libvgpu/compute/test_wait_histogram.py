"""Delays of held launches: counted by powers of two in C, read as percentiles in Python."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libvgpu._native import ffi, lib
from libvgpu.limits import ContainerLimits, DeviceLimit, Family
from libvgpu.region import create, read_usage
from libvgpu.usage import delay_quantile_ns

MS = 1_000_000
FIRST_NS = 65_536
FULL = 0xFFFF


def noted(*waits_ns: int) -> Any:
    counters = ffi.new("struct vgpu_usage_slot_device *")
    for each in waits_ns:
        lib.wait_histogram_note(counters, each)
    return counters


@pytest.mark.parametrize(
    ("waited_ns", "bucket"),
    [
        (-5, 0), (0, 0), (FIRST_NS - 1, 0), (FIRST_NS, 1), (2 * FIRST_NS - 1, 1),
        (2 * FIRST_NS, 2), (FIRST_NS << 13, 14), ((FIRST_NS << 14) - 1, 14), (FIRST_NS << 14, 15),
        (3_600 * 1000 * MS, 15), ((1 << 63) - 1, 15),
    ],
)  # fmt: skip
def test_a_delay_counts_in_the_bucket_of_its_length(waited_ns: int, bucket: int) -> None:
    counts = list(noted(waited_ns).delay_counts)

    assert counts == [int(at == bucket) for at in range(16)]


@given(st.lists(st.integers(1, 1000 * MS), min_size=1, max_size=200), st.sampled_from([0.5, 0.99]))
def test_a_percentile_is_right_to_within_a_factor_of_two(waits_ns: list[int], part: float) -> None:
    counts = list(noted(*waits_ns).delay_counts)

    seen_ns = delay_quantile_ns(counts, part)

    ordered = sorted(waits_ns)
    true_ns = next(w for i, w in enumerate(ordered, 1) if i >= part * len(ordered))
    assert seen_ns <= max(2 * true_ns, FIRST_NS)
    assert 2 * seen_ns >= true_ns or true_ns < FIRST_NS


def test_one_late_launch_in_fifty_shows_and_one_in_a_thousand_does_not() -> None:
    often = delay_quantile_ns(noted(*[MS] * 98, *[200 * MS] * 2).delay_counts, 0.99)
    rarely = delay_quantile_ns(noted(*[MS] * 999, 200 * MS).delay_counts, 0.99)

    assert 100 * MS < often < 400 * MS
    assert rarely < 2.2 * MS


def test_without_a_held_launch_there_is_no_delay() -> None:
    assert delay_quantile_ns([0] * 16, 0.99) == 0


def test_a_full_bucket_halves_all_and_the_present_outweighs_the_past() -> None:
    counters = noted()
    counters.delay_counts[0], counters.delay_counts[9] = FULL, 4

    lib.wait_histogram_note(counters, 1)
    assert list(counters.delay_counts[0:10]) == [FULL // 2 + 1, *[0] * 8, 2]

    for _ in range(3 * FULL):
        lib.wait_histogram_note(counters, 20 * MS)
    assert counters.delay_counts[9] > 2 * counters.delay_counts[0]
    assert delay_quantile_ns(counters.delay_counts, 0.99) > 10 * MS


def test_the_host_reads_what_is_noted_and_sums_processes(tmp_path: Path) -> None:
    create(tmp_path / "slice", ContainerLimits("a", Family.VGPU, (DeviceLimit("GPU-a", 1),)))
    path = tmp_path / "slice/usage"
    image = bytearray(path.read_bytes())
    file = ffi.from_buffer("unsigned char[]", image)
    ffi.cast("struct vgpu_usage_header *", file).hi_slot = 2
    for slot, waited_ns in ((0, 1), (1, 3 * MS)):
        lib.usage_slot(file, slot).gen = 1
        counters = lib.usage_slot_device(file, slot, 0)
        counters.windows = 5
        counters.books = slot * lib.VGPU_BOOKS_ESTIMATED
        lib.wait_histogram_note(counters, waited_ns)
    path.write_bytes(image)

    usage = read_usage(tmp_path / "slice")

    first, second = (process.devices[0] for process in usage.processes)
    assert (sum(first.delay_counts), first.delay_counts[0]) == (1, 1)
    assert (first.is_estimated, second.is_estimated) == (False, True)
    total = usage.devices[0]
    assert (total.windows, sum(total.delay_counts), total.is_estimated) == (10, 2, True)
