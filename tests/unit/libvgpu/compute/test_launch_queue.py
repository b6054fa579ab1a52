"""Launches of one container that wait: in which order its processes are served, and how long.

Delays are counted by powers of two in C, and read as percentiles in Python.
"""

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
NOW_NS = 5_000 * MS
DEVICE = 1


@pytest.fixture
def usage() -> Any:
    """A `usage` file of two devices in which three slots were used."""
    image = ffi.new("unsigned char[]", lib.usage_file_bytes(2))
    lib.usage_format(image, 2, b"tenant")
    ffi.cast("struct vgpu_usage_header *", image).hi_slot = 3
    return image


def behind(usage: Any, slot: int, since_ns: int, now_ns: int = NOW_NS) -> bool:
    return bool(lib.arrival_is_behind(usage, DEVICE, slot, since_ns, now_ns))


def wait(usage: Any, slot: int, since_ns: int, until_ns: int = NOW_NS + 10 * MS) -> None:
    lib.arrival_wait(usage, DEVICE, slot, since_ns, until_ns)


def test_alone_nobody_is_before_us(usage: Any) -> None:
    assert not behind(usage, 0, NOW_NS)

    wait(usage, 0, NOW_NS - MS)

    assert not behind(usage, 0, NOW_NS - MS)


def test_who_came_first_goes_first(usage: Any) -> None:
    wait(usage, 2, NOW_NS - 3 * MS)
    wait(usage, 0, NOW_NS - 2 * MS)

    assert behind(usage, 0, NOW_NS - 2 * MS)
    assert behind(usage, 1, NOW_NS), "one that comes now is behind all that wait"
    assert not behind(usage, 2, NOW_NS - 3 * MS)

    lib.arrival_leave(usage, DEVICE, 2)

    assert not behind(usage, 0, NOW_NS - 2 * MS)
    assert behind(usage, 1, NOW_NS)


def test_of_two_that_came_at_once_one_goes(usage: Any) -> None:
    for slot in (0, 2):
        wait(usage, slot, NOW_NS - MS)

    assert [behind(usage, slot, NOW_NS - MS) for slot in (0, 2)] == [False, True]


def test_one_that_was_killed_or_stopped_holds_nobody_up_for_long(usage: Any) -> None:
    wait(usage, 2, NOW_NS - MS, until_ns=NOW_NS + 10 * MS)

    assert behind(usage, 0, NOW_NS, NOW_NS + 14 * MS)
    assert not behind(usage, 0, NOW_NS, NOW_NS + 10 * MS + lib.ARRIVAL_GRACE_NS)


def test_the_last_word_of_the_dead_does_not_outlive_that_of_others(usage: Any) -> None:
    wait(usage, 2, NOW_NS - MS, until_ns=NOW_NS + MS)
    wait(usage, 0, NOW_NS, until_ns=NOW_NS + 20 * MS)
    later_ns = NOW_NS + MS + lib.ARRIVAL_GRACE_NS

    assert behind(usage, 1, later_ns, later_ns)
    assert not behind(usage, 0, NOW_NS, later_ns)


def test_garbage_holds_nobody_up(usage: Any) -> None:
    wait(usage, 2, 1, until_ns=1 << 62)

    assert not behind(usage, 0, NOW_NS)


def test_the_other_device_has_its_own_order(usage: Any) -> None:
    wait(usage, 2, NOW_NS - MS)

    assert not lib.arrival_is_behind(usage, 0, 0, NOW_NS, NOW_NS)


def test_who_was_served_goes_on_for_a_moment(usage: Any) -> None:
    def turns(now_ns: int) -> list[int]:
        return [lib.arrival_served(usage, DEVICE, slot, now_ns) for slot in (0, 2)]

    assert turns(NOW_NS) == [lib.ARRIVAL_NOBODY] * 2
    wait(usage, 2, NOW_NS - MS)

    lib.arrival_serve(usage, DEVICE, 2, NOW_NS)

    assert not behind(usage, 0, NOW_NS), "it waits no more"
    assert turns(NOW_NS) == [lib.ARRIVAL_OTHER, lib.ARRIVAL_OWN]
    assert turns(NOW_NS + lib.ARRIVAL_SERVED_NS - 1) == [lib.ARRIVAL_OTHER, lib.ARRIVAL_OWN]
    assert turns(NOW_NS + lib.ARRIVAL_SERVED_NS) == [lib.ARRIVAL_NOBODY] * 2


def test_a_turn_of_the_future_is_nobodys(usage: Any) -> None:
    lib.arrival_serve(usage, DEVICE, 2, NOW_NS)

    assert lib.arrival_served(usage, DEVICE, 0, NOW_NS - MS) == lib.ARRIVAL_NOBODY


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
