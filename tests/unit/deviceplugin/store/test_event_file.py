"""The agent's events are kept in a file that stays small, whatever happens."""

import os
from pathlib import Path

import pytest

from deviceplugin.model.allocations import Owner
from deviceplugin.model.notices import EventReason, Notice, container_notice, node_notice
from deviceplugin.store import event_file
from deviceplugin.store.event_file import FILE, MOST_BYTES, REPEAT_S, EventFile, kept_events


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def refused(text: str = "core: 60 is not free") -> Notice:
    notice = container_notice(EventReason.ALLOCATION_REFUSED, text, Owner("team", "pod", "main"))
    assert notice is not None
    return notice


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def file(tmp_path: Path, clock: Clock) -> EventFile:
    return EventFile(tmp_path, lambda: 1000.0 + clock.now_s, clock)


def test_what_was_added_is_read_in_order(file: EventFile, tmp_path: Path) -> None:
    file.add(refused())
    file.add(node_notice(EventReason.GPU_HEALTHY, "GPU 0 is healthy again"))
    first, second = kept_events(tmp_path)
    assert (first.reason, first.subject, first.is_warning, first.at) == (
        "AllocationRefused",
        "team/pod/main",
        True,
        1000.0,
    )
    assert (second.reason, second.subject, second.is_warning) == ("GpuHealthy", "", False)


def test_equal_ones_are_counted_until_they_count_again(
    file: EventFile, tmp_path: Path, clock: Clock
) -> None:
    for _ in range(5):
        file.add(refused())
    clock.now_s = REPEAT_S
    file.add(refused())
    assert [each.left_out for each in kept_events(tmp_path)] == [0, 4]


def test_a_flood_of_different_ones_is_bounded(file: EventFile, tmp_path: Path) -> None:
    for number in range(9000):
        file.add(refused(f"{number} {'x' * 100}"))
    sizes = [os.path.getsize(tmp_path / name) for name in (FILE, f"{FILE}.1")]
    assert all(size <= MOST_BYTES for size in sizes)
    texts = [int(each.text.split()[0]) for each in kept_events(tmp_path)]
    assert texts == list(range(texts[0], 9000))
    assert len(texts) > 1000
    assert len(file._last) <= event_file._REMEMBERED


def test_a_long_text_is_cut(file: EventFile, tmp_path: Path) -> None:
    file.add(refused("x" * (1 << 20)))
    (kept,) = kept_events(tmp_path)
    assert len(kept.text) == event_file._MOST_TEXT


def test_damaged_lines_are_left_out(file: EventFile, tmp_path: Path) -> None:
    file.add(refused("one"))
    with open(tmp_path / FILE, "ab") as raw:
        raw.write(b'{"at": 1\n\xff\xfe\n[]\n\n' + b"[" * 5000 + b"\n")
    file.add(refused("two"))
    assert [each.text for each in kept_events(tmp_path)] == ["one", "two"]


def test_a_disk_that_takes_nothing_is_no_error(tmp_path: Path) -> None:
    file = EventFile(tmp_path / "not there")
    file.add(refused())
    assert kept_events(tmp_path / "not there") == []


def test_what_only_its_owner_may_know_is_readable_by_nobody_else(
    file: EventFile, tmp_path: Path
) -> None:
    file.add(refused())
    assert (tmp_path / FILE).stat().st_mode & 0o077 == 0
