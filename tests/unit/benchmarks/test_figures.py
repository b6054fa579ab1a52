"""`python -m benchmarks`: what is measured is told with its spread, and what is not, with why."""

import ctypes
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks import __main__ as command
from benchmarks import hooks
from benchmarks.figure import Figure, Measurement, Options, spread, to_json
from benchmarks.nulldriver import build_driver, entry_points, rest_source
from libvgpu.errors import VgpuError

BASE_NS = 3.0


def test_a_spread_is_the_median_and_the_quartiles() -> None:
    found = spread("c", "s", "time", "ns/call", [5.0, 1.0, 2.0, 3.0, 4.0])

    assert (found.value, found.low, found.high) == (3.0, 2.0, 4.0)


def test_one_sample_has_no_width() -> None:
    found = spread("c", "s", "time", "ns/call", [7.0])

    assert (found.value, found.low, found.high) == (7.0, 7.0, 7.0)


def test_json_names_machine_label_and_every_number() -> None:
    figure = Figure("f", "summary", "null driver, CPU only", lambda options: [])
    whole = json.loads(to_json([(figure, [spread("c", "s", "time", "ns/call", [1.0])])]))

    assert set(whole["machine"]) == {"cpu", "cores", "memory", "kernel", "libc"}
    (found,) = whole["figures"]
    assert (found["figure"], found["label"]) == ("f", "null driver, CPU only")
    assert found["measurements"][0]["value"] == 1.0


def test_an_unknown_figure_is_wrong_usage_that_lists_the_figures(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert command.main(["run", "speed"]) == 2

    error = capsys.readouterr().err
    assert "'speed'" in error
    assert "hooks" in error


@pytest.mark.parametrize(
    ("measurement", "must_hold", "status"),
    [
        (Measurement("c", "s", "time", "ns", 1.0), False, 0),
        (Measurement("c", "s", "time", "ns", None, note="it crashed"), False, 1),
        (Measurement("c", "s", "count", "", None, note="no valgrind", needs_tool=True), False, 0),
        (Measurement("c", "s", "violations", "", 1.0, note="lost", most=0), False, 0),
        (Measurement("c", "s", "violations", "", 1.0, note="lost", most=0), True, 1),
        (Measurement("c", "s", "violations", "", 0.0, most=0), True, 0),
    ],
)
def test_a_failed_measurement_shows_in_table_json_and_status(
    measurement: Measurement,
    must_hold: bool,
    status: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    figure = Figure(
        "fake", "summary", "made up", lambda options: [measurement], must_hold=must_hold
    )
    monkeypatch.setattr(command, "load_figure", lambda name: figure)

    assert command.main(["run", "fake", "--json", str(tmp_path / "out.json")]) == status

    out = capsys.readouterr().out
    assert "made up" in out
    assert measurement.note in out
    written = json.loads((tmp_path / "out.json").read_text())
    assert written["figures"][0]["measurements"][0]["value"] == measurement.value


@pytest.mark.process
def test_the_null_driver_has_every_row_of_the_hook_table(tmp_path: Path) -> None:
    points = entry_points()
    symbols = {point.symbol for point in points}

    assert {"cuInit", "cuLaunchKernel", "cuLaunchKernel_ptsz", "cuMemAlloc_v2"} <= symbols
    assert "strcmp(rows[i].name, name) == 0" in rest_source(points)
    driver = ctypes.CDLL(str(build_driver(tmp_path)))
    addresses = {ctypes.cast(getattr(driver, name), ctypes.c_void_p).value for name in symbols}
    assert len(addresses) == len(symbols)  # a shim tells what it was given by the address


class FakeBench(hooks.Bench):
    """Answers at once: the shim adds 2 ns, 10 instructions and a locked one, the rival crashes."""

    def time_calls(self, preload: Path | None, case: hooks.Case, way: str) -> float:
        if preload == Path("/rival.so"):
            raise VgpuError("it crashed")
        return BASE_NS + (2.0 if preload else 0.0)

    def count(self, preload: Path | None, case: hooks.Case, way: str) -> hooks.CallCost:
        if preload == Path("/rival.so"):
            raise VgpuError("it crashed")
        return hooks.CallCost(30.0, 1.0) if preload else hooks.CallCost(20.0, 0.0)


def _values(found: Sequence[Measurement]) -> dict[tuple[str, str], float | None]:
    return {(m.subject, m.quantity): m.value for m in found}


def test_what_is_added_is_the_difference_to_no_shim_of_the_same_round(tmp_path: Path) -> None:
    bench = FakeBench(tmp_path, tmp_path / "client")
    subjects = {"libvgpu": Path("/ours.so"), "rival.so": Path("/rival.so")}
    case = hooks.CASES[0]

    times = hooks._times(bench, case, "elf", subjects, rounds=3)
    counts = hooks._instructions(bench, case, "elf", subjects)

    assert _values(times) == {
        ("no shim", "time"): BASE_NS,
        ("libvgpu", "added time"): 2.0,
        ("rival.so", "added time"): None,
    }
    assert _values(counts) == {
        ("libvgpu", "added instructions"): 10.0,
        ("libvgpu", "added locked instructions"): 1.0,
        ("rival.so", "added instructions"): None,
    }
    assert [m.note for m in (*times, *counts) if m.value is None] == ["it crashed"] * 2


def test_the_options_reach_the_figure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rival = tmp_path / "rival.so"
    rival.touch()
    seen: list[Options] = []

    def measure(options: Options) -> list[Measurement]:
        seen.append(options)
        return []

    monkeypatch.setattr(command, "load_figure", lambda name: Figure("f", "", "", measure))

    assert command.main(["run", "f", "--shim", str(rival), "--rounds", "3"]) == 0
    assert seen == [Options(rival, 3)]
