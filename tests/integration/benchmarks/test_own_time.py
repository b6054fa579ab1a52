"""Figures in a time of their own: the same on every machine, and right where they failed once."""

import subprocess
import sys

import pytest

from benchmarks.figure import Options
from benchmarks.program_cases import TRAINING, Case, Goal
from benchmarks.programs import measure_cases
from support import ROOT
from support.waiting import PATIENCE_S

BENCHMARKS = [sys.executable, "-m", "benchmarks", "run"]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*BENCHMARKS, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


@pytest.mark.process
def test_a_figure_that_the_simulated_gpu_decides_is_the_same_each_time() -> None:
    found = [run("programs", "--count", "1", "--seconds", "0.5") for _ in range(2)]

    assert [each.returncode for each in found] == [0, 0], found[0].stderr
    assert "decode, 90 %" in found[0].stdout
    assert found[0].stdout == found[1].stdout


@pytest.mark.process
def test_a_figure_of_its_own_time_is_not_taken_with_one_of_the_machines() -> None:
    found = run("programs", "cli")

    assert found.returncode == 2
    assert "a run of its own: programs" in found.stderr


@pytest.mark.virtual
def test_training_that_launches_behind_its_own_copies_keeps_its_speed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No launch of it comes on an idle GPU, so its kernels of 6 us once seemed to take 8."""
    monkeypatch.setenv("VGPU_SIM_CALIBRATION", "h100")
    case = Case((TRAINING,), (90,), Goal.KEPT)

    found = measure_cases([case], Options(None, rounds=1, seconds=1.0))

    (kept,) = (each for each in found if each.least is not None)
    assert kept.value is not None and kept.value >= 0.99
