"""The window and the percentages of a container's own GPU time, over simulated time."""

from typing import Any

import pytest

from libvgpu._native import ffi, lib

MS = 1_000_000
SECOND = 1000 * MS
START = 50 * SECOND
SLOTS = 3


class Usage:
    """A `usage` image of one device with a few slots in use."""

    def __init__(self) -> None:
        self.image = ffi.new("unsigned char[]", lib.usage_file_bytes(1))
        lib.usage_format(self.image, 1, b"test")
        ffi.cast("struct vgpu_usage_header *", self.image).hi_slot = SLOTS

    @property
    def shared(self) -> Any:
        return lib.usage_device(self.image, 0)

    def slot(self, index: int) -> Any:
        return lib.usage_slot_device(self.image, index, 0)

    def sample(self, now_ns: int) -> None:
        lib.utilisation_sample(self.image, 0, now_ns)

    def percents(self, now_ns: int) -> tuple[int, list[int]]:
        """Returns what the container had, and each slot."""
        window = ffi.new("struct utilisation_window *", self.window(now_ns))
        return (
            lib.utilisation_of_container(self.image, 0, window),
            [lib.utilisation_of_slot(self.image, i, 0, window) for i in range(SLOTS)],
        )

    def window(self, now_ns: int) -> Any:
        return lib.utilisation_window(self.image, 0, now_ns)


@pytest.fixture
def usage() -> Usage:
    return Usage()


def test_without_a_sample_nothing_is_claimed(usage: Usage) -> None:
    usage.slot(0).gpu_time_ns = 10 * SECOND

    assert usage.percents(START) == (0, [0, 0, 0])


@pytest.mark.parametrize(("busy_ms", "percent"), [(0, 0), (1, 1), (100, 50), (150, 75), (900, 100)])
def test_the_share_is_gpu_time_by_time(usage: Usage, busy_ms: int, percent: int) -> None:
    usage.slot(1).gpu_time_ns = 7 * SECOND
    usage.sample(START)
    usage.slot(1).gpu_time_ns += busy_ms * MS

    assert usage.percents(START + 200 * MS) == (percent, [0, percent, 0])


def test_processes_are_summed_and_never_beyond_the_whole(usage: Usage) -> None:
    usage.sample(START)
    for index, busy_ms in enumerate((40, 60, 30)):
        usage.slot(index).gpu_time_ns = busy_ms * MS
    assert usage.percents(START + 200 * MS) == (65, [20, 30, 15])

    for index in range(SLOTS):
        usage.slot(index).gpu_time_ns = SECOND
    assert usage.percents(START + 200 * MS)[0] == 100


def test_samples_are_taken_no_more_often_than_every_200_ms(usage: Usage) -> None:
    for ms in range(0, 1000, 10):
        usage.sample(START + ms * MS)

    assert usage.shared.sample_count == 5


def test_a_reader_always_has_a_window_of_a_sixth_to_half_a_second(usage: Usage) -> None:
    for ms in range(0, 5000, 7):
        usage.sample(START + ms * MS)
        if ms > 500:
            length = usage.window(START + ms * MS).length_ns
            assert lib.UTILISATION_LEAST_NS <= length <= 500 * MS, ms


def test_steady_work_shows_the_same_at_every_moment(usage: Usage) -> None:
    for ms in range(0, 3000, 3):
        usage.slot(0).gpu_time_ns = ms * MS * 3 // 10
        usage.sample(START + ms * MS)
        if ms > 300:
            assert usage.percents(START + (ms + 1) * MS)[0] in (29, 30), ms


def test_work_after_a_long_pause_shows_at_once(usage: Usage) -> None:
    usage.sample(START)
    usage.sample(START + 600 * SECOND)  # the first batch after ten idle minutes
    usage.slot(0).gpu_time_ns = 50 * MS

    assert usage.percents(START + 600 * SECOND + 50 * MS)[0] == 100


def test_work_that_ended_long_ago_shows_no_more(usage: Usage) -> None:
    usage.sample(START)
    usage.slot(0).gpu_time_ns = 100 * MS

    assert usage.percents(START + 600 * SECOND)[0] == 0


def test_a_place_that_changes_hands_takes_nothing_along(usage: Usage) -> None:
    usage.slot(0).gpu_time_ns = 90 * SECOND
    usage.sample(START)
    usage.slot(0).gpu_time_ns = usage.slot(0).sampled_gpu_ns[0] = 0  # as a claim cleans it
    usage.slot(0).gpu_time_ns = 20 * MS
    usage.slot(1).gpu_time_ns = 20 * MS

    assert usage.percents(START + 200 * MS) == (20, [10, 10, 0])


@pytest.mark.parametrize("elapsed_ms", [200, 300, 500])
def test_a_kernel_longer_than_the_window_shows_while_it_runs(usage: Usage, elapsed_ms: int) -> None:
    usage.sample(START)
    usage.slot(0).in_flight_ns = 1000 * MS
    usage.slot(0).in_flight_since_ns = START

    assert usage.percents(START + elapsed_ms * MS)[0] == 100


def test_what_has_just_been_charged_has_not_been_used_yet(usage: Usage) -> None:
    usage.sample(START)
    usage.slot(0).in_flight_ns = 1000 * MS
    usage.slot(0).in_flight_since_ns = START + 150 * MS

    assert usage.percents(START + 200 * MS)[0] == 25


def test_what_was_waited_for_and_not_measured_counts_once(usage: Usage) -> None:
    usage.slot(0).in_flight_ns = 50 * MS
    usage.slot(0).in_flight_since_ns = START

    usage.sample(START + 20 * MS)
    assert usage.percents(START + 220 * MS)[0] == 15

    usage.sample(START + 220 * MS)
    assert usage.percents(START + 420 * MS)[0] == 0


def test_counters_that_run_backwards_show_nothing(usage: Usage) -> None:
    usage.slot(0).gpu_time_ns = SECOND
    usage.sample(START)
    usage.slot(0).gpu_time_ns = 0
    usage.slot(1).in_flight_ns = 2**64 - 5
    usage.slot(1).in_flight_since_ns = 2**64 - 5

    assert usage.percents(START + 200 * MS) == (0, [0, 0, 0])


def test_a_sample_from_the_future_is_taken_again(usage: Usage) -> None:
    usage.sample(START + 900 * SECOND)
    assert usage.percents(START) == (0, [0, 0, 0])

    usage.sample(START)
    usage.slot(0).gpu_time_ns = 100 * MS

    assert usage.percents(START + 200 * MS)[0] == 50


def test_a_spoilt_count_of_slots_is_bounded(usage: Usage) -> None:
    ffi.cast("struct vgpu_usage_header *", usage.image).hi_slot = 0xFFFFFFFF

    usage.sample(START)

    assert usage.percents(START + 200 * MS)[0] == 0
