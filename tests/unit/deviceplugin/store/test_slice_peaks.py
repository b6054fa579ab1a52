"""The most that slices were, over a restart, and with a disk that does not take it."""

import logging
from pathlib import Path

import pytest

from deviceplugin.store.slice_peaks import FILE, SlicePeaks

SLICE, OTHER = ("a", "GPU-a"), ("b", "GPU-a")


def test_what_a_slice_was_above_its_request_is_there_after_a_restart(tmp_path: Path) -> None:
    asked = {SLICE: 8, OTHER: 8}
    kept = SlicePeaks(tmp_path)
    kept.note(asked, {SLICE: 8, OTHER: 8})
    assert list(tmp_path.iterdir()) == []
    kept.note(asked, {SLICE: 16, OTHER: 4})

    kept = SlicePeaks(tmp_path)

    kept.note(asked, {SLICE: 4, OTHER: 4})
    assert kept.most_bytes == {SLICE: 16, OTHER: 8}
    kept.note({OTHER: 8}, {OTHER: 4})  # the other has ended
    assert SlicePeaks(tmp_path).most_bytes == {}


@pytest.mark.parametrize(
    "content", ["", "{", "1", "[1]", '[["a", "GPU-a"]]', '[["a", "GPU-a", "x"]]', "[[1, 2, 1e999]]",
                '[["a", "GPU-a", -1]]']
)  # fmt: skip
def test_a_damaged_file_is_none(tmp_path: Path, content: str) -> None:
    (tmp_path / FILE).write_text(content)

    assert SlicePeaks(tmp_path).most_bytes == {}


def test_a_disk_that_does_not_take_it_is_said_once_and_all_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "deviceplugin")
    kept = SlicePeaks(tmp_path / "gone")

    for _ in range(2):
        kept.note({SLICE: 8}, {SLICE: 16})

    assert kept.most_bytes == {SLICE: 16}
    assert [record.message for record in caplog.records] == ["the largest slices cannot be saved"]
