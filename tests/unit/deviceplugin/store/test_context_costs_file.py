"""What contexts take over a restart, and with a disk that does not take it."""

import logging
from pathlib import Path

import pytest

from deviceplugin.policy.context_costs import ContextKind, MeasuredContext
from deviceplugin.store.context_costs_file import FILE, KeptContextCosts

MIB = 1 << 20
KIND = ContextKind("NVIDIA H100", "580.65.06", under_mps=True)
FOUND = MeasuredContext("a", "GPU-a", 518 * MIB, 600 * MIB)


def test_what_was_learnt_is_there_after_a_restart(tmp_path: Path) -> None:
    KeptContextCosts(tmp_path).note([(None, FOUND), (KIND, FOUND)])

    assert KeptContextCosts(tmp_path).costs.measured == {KIND: {"a": 518 * MIB}}
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


@pytest.mark.parametrize(
    "content",
    ["", "{", "[1]", '{"a": 1}', "[{}]", '[{"product": "x", "driver": "y", "bytes": {"a": "b"}}]'],
)
def test_a_damaged_file_is_none(tmp_path: Path, content: str) -> None:
    (tmp_path / FILE).write_text(content)

    kept = KeptContextCosts(tmp_path)

    assert not kept.costs.measured
    kept.note([(KIND, FOUND)])
    assert KeptContextCosts(tmp_path).costs.of(KIND) == 518 * MIB


def test_a_disk_that_does_not_take_it_is_said_and_all_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "deviceplugin")
    kept = KeptContextCosts(tmp_path / "gone")

    kept.note([(KIND, FOUND)])

    assert kept.costs.of(KIND) == 518 * MIB
    assert [record.message for record in caplog.records] == ["what contexts take cannot be saved"]
