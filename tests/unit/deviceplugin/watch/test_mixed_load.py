"""An hour of honest work accuses nobody; and it would, were one of the watch's rules not there."""

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from deviceplugin.store.slice_peaks import SlicePeaks
from deviceplugin.watch import procfs, unaccounted_memory
from support import IS_LONG
from support.node import mixed_load
from support.node.mixed_load import MixedLoad

HOUR_S = 3600.0
SEEDS = range(20) if IS_LONG else [1]


def accusations(
    path: Path, seed: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> list[str]:
    caplog.set_level(logging.INFO, "deviceplugin")
    load = MixedLoad(path, seed, monkeypatch)
    while load.now_s < HOUR_S and not caplog.records:
        load.live(60.0)
    return [f"{record.message}: {record.__dict__['fields']}" for record in caplog.records]


@pytest.mark.parametrize("seed", SEEDS)
def test_an_hour_of_honest_work_accuses_nobody(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert accusations(tmp_path, seed, monkeypatch, caplog) == []


FAULTS: dict[str, Callable[[pytest.MonkeyPatch], object]] = {
    "what is not steady counts": lambda m: m.setattr(unaccounted_memory, "STEADY_S", 0.0),
    "who is ending counts": lambda m: m.setattr(procfs, "_PF_EXITING", 0),
    "what slices were is forgotten": lambda m: m.setattr(
        mixed_load, "SlicePeaks", lambda path: _Forgetful(path / "nowhere")
    ),
}


class _Forgetful(SlicePeaks):
    def _save(self, raised: object) -> None:
        """Keeps nothing."""


@pytest.mark.parametrize("plant", FAULTS.values(), ids=FAULTS.keys())
def test_an_hour_finds_a_planted_fault(
    tmp_path: Path,
    plant: Callable[[pytest.MonkeyPatch], object],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    plant(monkeypatch)

    assert accusations(tmp_path, 1, monkeypatch, caplog)
