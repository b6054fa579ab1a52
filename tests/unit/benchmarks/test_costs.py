"""The figure `costs`: what a light program could keep at best, and what is judged by that."""

import pytest

from benchmarks.blind_schedule import most_kept
from benchmarks.costs import variants
from libvgpu.sim.calibration import find_calibration

MS = 1_000_000.0
STEP_NS, GPU_NS = 3.7 * MS, 0.6 * MS


def test_the_dearer_changes_are_the_less_a_light_program_keeps() -> None:
    kept = [most_kept(STEP_NS, GPU_NS, 0.65, change_ns) for change_ns in (0, 127_000, 254_000)]

    assert kept == sorted(kept, reverse=True)
    assert kept[0] > 0.95
    assert kept[1] == pytest.approx(0.86, abs=0.02)
    assert kept[2] == pytest.approx(0.76, abs=0.02)


def test_alone_it_keeps_all() -> None:
    assert most_kept(STEP_NS, GPU_NS, 0, 0) == pytest.approx(1)


def test_costs_vary_by_more_than_one_seed() -> None:
    found = variants(find_calibration("h100"))

    assert {each.spread_seed for each in found.values()} >= {0, 1, 2}
