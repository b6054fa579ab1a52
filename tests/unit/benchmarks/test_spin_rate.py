"""Rounds that clients' kernels do in a millisecond: what is read, and that each client is told."""

import contextlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from benchmarks import nulldriver
from benchmarks.program_plans import Loop
from benchmarks.silicon import bench, calls, played, turns
from benchmarks.silicon.bench import Load, Window
from benchmarks.silicon.calls import measure_calls
from benchmarks.silicon.holding import Hold
from benchmarks.silicon.rows import LONG
from benchmarks.silicon.spin_rate import read_rate
from benchmarks.silicon.turns import TurnRow, measure_turns
from libvgpu.errors import VgpuError
from support.sim.gpu import SimulatedGpu

WINDOW = Window(0.0, 1.0)
RATE = 71_432


def test_the_rate_is_that_of_the_last_two_lines_without_what_a_launch_takes() -> None:
    first = "4096 4000000\n"  # of a GPU whose clock was low
    launch_ns = 5_700

    text = first + "".join(f"{n} {launch_ns + n * 14}\n" for n in (1_048_576, 2_097_152))

    assert read_rate(text) == round(1e6 / 14)


@pytest.mark.parametrize(
    "text", ["10 500\n20 500\n", "10 500\n20 400\n", "20 10\n10 20\n", "1 1\n2 9999999\n"]
)
def test_more_rounds_that_are_not_longer_tell_no_rate(text: str) -> None:
    with pytest.raises(VgpuError, match="which tells no rate"):
        read_rate(text)


class _Gpu(SimulatedGpu):
    """One that nothing runs on."""

    def __init__(self) -> None:
        self.title, self.memory_bytes_per_second = "a GPU", 10**12

    def environment(self, base: Any) -> dict[str, str]:
        return dict(base)


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Returns the commands of clients, which are not run."""
    given: list[list[str]] = []

    @contextmanager
    def started(command: list[str], *_: Any) -> Iterator[None]:
        given.append(command)
        raise VgpuError("not run")
        yield

    def run(command: list[str], *_: Any) -> str:
        given.append(command)
        return ""

    for module in (bench, played, turns):
        monkeypatch.setattr(module, "started", started)
    monkeypatch.setattr(calls, "run", run)
    monkeypatch.setattr(nulldriver, "build_client", lambda name, driver, *_: driver.parent / name)
    return given


def _bench(gpu: _Gpu) -> None:
    with bench.open_bench(gpu, RATE) as made:
        made.rates([Load(LONG)], Hold.BARE, WINDOW)


def _players(gpu: _Gpu) -> None:
    with played.open_players(gpu, RATE) as made:
        made.play_once([Loop(1)], Hold.BARE, WINDOW)


@pytest.mark.parametrize(
    ("name", "measure"),
    [
        ("share_client", _bench),
        ("trace_client", _players),
        ("calls_client", lambda gpu: measure_calls(gpu, RATE)),
        ("turns_client", lambda gpu: measure_turns(gpu, RATE, WINDOW, [TurnRow(2, 100)])),
    ],
)
def test_every_client_whose_kernels_are_timed_is_told_the_rate(
    commands: list[list[str]], name: str, measure: Callable[[_Gpu], object], tmp_path: Path
) -> None:
    gpu = _Gpu()
    gpu.driver = tmp_path / "libcuda.so.1"

    with contextlib.suppress(VgpuError):  # nothing is run
        measure(gpu)

    (command,) = commands
    assert Path(command[0]).name == name
    assert f"rounds_per_ms={RATE}" in command
