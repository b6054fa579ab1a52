"""What costs a calibration's seed makes of it: others with another seed, the same with the same."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from libvgpu.sim import PROFILES, Machine
from libvgpu.sim.calibration import SPREADS, call_names, find_calibration
from support.sim.programs import said_in

H100 = find_calibration("h100")
RUN_PERCENT = dict(zip(SPREADS, H100.run_spread_percent, strict=True))
PERCENT = dict(zip(SPREADS, H100.spread_percent, strict=True))
CALL_NS = dict(zip(call_names(), H100.call_ns, strict=True))
SEEDS = range(1, 7)

pytestmark = pytest.mark.virtual

#: What each of some launches took of the host, and each of some kernels of the GPU; in all, too.
CODE = """
open_context()
driver = ctypes.CDLL("libcuda.so.1")
def launches(kernel_ns, count, after):
    spinner = Spinner(kernel_ns)
    stream, function = ctypes.c_void_p(int(spinner.stream)), ctypes.c_void_p(int(spinner._function))
    warm = Spinner(50_000_000)  # until the clock is up
    warm.launch()
    warm.wait()
    begun, took = time.monotonic_ns(), []
    for _ in range(count):
        at = time.monotonic_ns()
        driver.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, spinner._arguments, None)
        after(spinner)
        took.append(time.monotonic_ns() - at)
    spinner.wait()
    return took, time.monotonic_ns() - begun
calls, calls_ns = launches(100, 400, lambda spinner: None)
kernels, kernels_ns = launches(1_000_000, 400, Spinner.wait)
say(calls=calls, calls_ns=calls_ns, kernels=kernels, kernels_ns=kernels_ns)
"""


def told(folder: Path, seed: int) -> Any:
    profile = replace(PROFILES["h100-80g"], calibration=H100.varied(seed))
    machine = Machine.create([profile], folder)
    said = said_in(machine, CODE)
    machine.remove()
    return said


def test_without_a_seed_everything_takes_the_same_each_time(tmp_path: Path) -> None:
    said = told(tmp_path / "exact", 0)

    assert len(set(said["calls"][1:])) == 1
    assert len(set(said["kernels"][1:])) == 1


def test_a_seed_tells_the_same_each_time(tmp_path: Path) -> None:
    assert told(tmp_path / "one", 1) == told(tmp_path / "other", 1)


def test_calls_and_kernels_vary_by_what_the_calibration_says(tmp_path: Path) -> None:
    said = told(tmp_path / "varied", 1)
    launch_ns = CALL_NS["cuLaunchKernel"]

    most = (1 + PERCENT["call"] / 100) * (1 + RUN_PERCENT["call"] / 100)
    assert 0.3 * launch_ns < max(said["calls"]) - min(said["calls"]) < 0.7 * launch_ns
    assert max(said["calls"][1:]) < most * launch_ns + 100
    assert 40_000 < max(said["kernels"]) - min(said["kernels"]) < 70_000


def test_runs_of_launches_differ_and_those_of_long_kernels_do_not(tmp_path: Path) -> None:
    """As on an H100: launch-bound rates by up to 15 %, and GPU-bound ones by next to nothing."""
    runs = [told(tmp_path / str(seed), seed) for seed in SEEDS]

    of_calls = [run["calls_ns"] for run in runs]
    of_kernels = [run["kernels_ns"] for run in runs]
    assert 1.05 < max(of_calls) / min(of_calls) < 1.2
    assert max(of_kernels) / min(of_kernels) < 1.005
