"""Learnt sizes over a restart, and with a disk that does not take them."""

import json
import logging
from pathlib import Path

import pytest

from deviceplugin.policy.limits.learnt_sizes import GpuKind, MeasuredSizes, Sizes
from deviceplugin.store.learnt_sizes_file import FILE, KeptSizes

MIB = 1 << 20
KIND = GpuKind("NVIDIA H100", "580.65.06", under_mps=True)
SIZES = Sizes(518 * MIB, 2 * MIB)
FOUND = MeasuredSizes("a", "GPU-a", SIZES, 600 * MIB)


def row(sizes: object) -> str:
    kind = {"product": KIND.product, "driver": KIND.driver, "under_mps": True}
    return json.dumps([{**kind, "sizes": sizes}])


def test_what_was_learnt_is_there_after_a_restart(tmp_path: Path) -> None:
    KeptSizes(tmp_path).note([(None, FOUND), (KIND, FOUND)])

    assert KeptSizes(tmp_path).learnt.measured == {KIND: {"a": SIZES}}
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


@pytest.mark.parametrize(
    "content",
    [
        *("", "{", "[1]", '{"a": 1}', "[{}]"),
        *map(row, (1, {"a": 1}, {"a": ["x", 1]}, {"a": [1, 2, 3]}, {"a": [-1, 0]}, {"a": [9e99]})),
    ],
)
def test_a_damaged_file_is_none(tmp_path: Path, content: str) -> None:
    (tmp_path / FILE).write_text(content)

    kept = KeptSizes(tmp_path)

    assert not kept.learnt.measured
    kept.note([(KIND, FOUND)])
    assert KeptSizes(tmp_path).learnt.of(KIND).context_bytes == 518 * MIB


def test_a_disk_that_does_not_take_it_is_said_and_all_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "deviceplugin")
    kept = KeptSizes(tmp_path / "gone")

    kept.note([(KIND, FOUND)])

    assert kept.learnt.of(KIND).context_bytes == 518 * MIB
    assert [record.message for record in caplog.records] == ["learnt sizes cannot be saved"]
