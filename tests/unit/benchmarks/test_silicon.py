"""The figure `silicon`: its rows, how they are judged, and what it says where there is no GPU."""

import ctypes
import os
from pathlib import Path
from typing import Any

import pytest

from benchmarks import __main__ as command
from benchmarks.figure import Measurement, describe_aim, describe_bar, judge
from benchmarks.gpu import FOUND_BY, RealGpu
from benchmarks.nvml import NvmlDevice
from benchmarks.silicon import experiments, memory
from benchmarks.silicon.calls import CALL_ROWS
from benchmarks.silicon.figure import judged
from benchmarks.silicon.holding import Hold
from benchmarks.silicon.played_rows import PLAYED_ROWS, QUICK_PLAYED
from benchmarks.silicon.rows import QUICK_ROWS, ROWS
from benchmarks.silicon.turns import TURN_ROWS


def test_no_two_results_of_silicon_have_one_name() -> None:
    names = [row.name for row in (*ROWS, *PLAYED_ROWS)] + [row.name for row in memory.ROWS]
    names += [row.name for row in CALL_ROWS] + [row.name for row in TURN_ROWS]
    names += [each.title for each in experiments.EXPERIMENTS]

    assert len(names) >= 80
    assert len(set(names)) == len(names)


def test_a_quick_run_takes_some_of_the_rows() -> None:
    assert set(QUICK_ROWS) < set(ROWS)
    assert set(QUICK_PLAYED) < set(PLAYED_ROWS)
    assert set(experiments.QUICK) < set(experiments.EXPERIMENTS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_row_has_a_value_for_each_tenant(row: Any) -> None:
    assert len(row.aims) == len(row.loads)
    held = sum(load.core_percent for load in row.loads)
    assert row.hold is Hold.BARE or held <= 100
    # Threads of MPS hold who runs without us.
    assert not any(load.mps_percent for load in row.loads) or row.mps


def test_a_value_is_held_against_silicon_in_both_directions() -> None:
    (row,) = [each for each in ROWS if each.aims == (45.0, 45.0)]

    first, second, total = judged(row, [45.9, 42.0], "a GPU")

    assert describe_bar(first) == "45 ± 1"
    assert (total.value, total.silicon) == (87.9, 90.0)
    (told, of_both) = judge([first, second, total])
    assert told.startswith(f"missed: {row.name}, tenant 2 with a GPU: share of bare is 42 %, on ")
    assert told.endswith("silicon it is 45 ± 1")
    assert "total is 87.9 %, on silicon it is 90 ± 2" in of_both


def test_what_an_earlier_shim_reached_is_told_and_is_no_bar() -> None:
    (row,) = [each for each in ROWS if len(each.loads) == 3]

    *tenants, total = judged(row, [20.0, 29.0, 49.8], "a GPU")

    assert [describe_aim(each) for each in tenants] == [
        f"(earlier shim {percent})" for percent in (17.7, 27.1, 46.7)
    ]
    assert describe_aim(total) == "≥ 97.5 (earlier shim 91.5)"
    assert judge([*tenants, total]) == []


def test_a_share_alone_is_held_against_what_was_asked_for() -> None:
    row = next(each for each in ROWS if each.loads[0].core_percent == 80)

    (near,) = judged(row, [79.6], "a GPU")
    (far,) = judged(row, [79.4], "a GPU")

    assert (describe_bar(near), judge([near])) == ("79.5 to 80.5", [])
    assert len(judge([far])) == 1


def test_an_experiment_is_held_against_what_the_simulated_gpu_is_to_give() -> None:
    told = Measurement("c", "a GPU", "time", "us", 310.0, simulated=0.0, tolerance=1.0)

    assert judge([told]) == ["missed: c with a GPU: time is 310 us, simulated 0 ± 1 was expected"]


def test_what_could_not_be_measured_is_no_match() -> None:
    lost = Measurement("c", "s", "taken", "GiB", None, note="it died", silicon=4.0, tolerance=9.0)

    assert judge([lost]) == [
        "missed: c with s: taken is not measured, on silicon it is 4 ± 9 (it died)"
    ]


def test_in_a_time_of_its_own_a_program_has_the_same_variables_on_every_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where its memory lies follows them, and the shim knows a kernel by an address."""
    gpu = RealGpu("a GPU", "GPU-0", 1, 1, Path("libcuda.so.1"), NvmlDevice.__new__(NvmlDevice))
    monkeypatch.setattr(os, "environ", {"VIRTUAL_TIME_FILE": "t", "LD_PRELOAD": "own.so"})
    for name in (*FOUND_BY, "HOME", "PYTHONPATH"):
        os.environ[name] = name

    variables = gpu.environment({"PATH": "p"})

    assert sorted(variables) == sorted(
        ["CUDA_VISIBLE_DEVICES", "LD_PRELOAD", "PATH", "VIRTUAL_TIME_FILE", *FOUND_BY]
    )


def test_without_a_gpu_it_says_so_before_anything_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", refuse)

    assert command.main(["run", "silicon"]) == 1
    said = capsys.readouterr().err
    assert "benchmarks: there is no libcuda.so.1: " in said
    assert "hint: --simulate h100 needs no GPU" in said


def test_an_unknown_profile_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["run", "silicon", "--simulate", "h900"]) == 2
    assert "unknown GPU profile 'h900'" in capsys.readouterr().err
