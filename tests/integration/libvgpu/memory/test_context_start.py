"""Processes that start at once do not wait for each other's context to be measured."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import clients, hooks
from benchmarks.nulldriver import build_client, build_driver
from libvgpu.artifacts import shim_path
from libvgpu.sim import Machine, ideal_profile
from libvgpu.sim.calibration import call_names

pytestmark = [pytest.mark.timing, pytest.mark.timeout(120)]

CONTEXT_NS = 200_000_000
PROCESSES = 16
MOST_OF_BARE = 1.2
CASE = hooks.Case("first context", "context", 100, 1, PROCESSES, is_told=False)


def last_ready_ns(bench: hooks.Bench, preload: Path | None) -> float:
    command = [str(bench.client), CASE.word, "elf", "1", "1"]
    environment = bench.environment(preload, CASE)
    said = clients.run_at_once(command, environment, 60, PROCESSES)
    return max(float(line) for output in said for line in output.split())


def test_the_last_of_many_has_its_context_as_soon_as_without_the_shim(tmp_path: Path) -> None:
    profile = ideal_profile("h100-80g")
    costs = dict.fromkeys(call_names(), 0) | {"cuDevicePrimaryCtxRetain": CONTEXT_NS}
    calibration = replace(profile.calibration, call_ns=tuple(costs.values()))
    machine = Machine.create([replace(profile, calibration=calibration)], tmp_path / "machine")
    driver = build_driver(tmp_path)
    bench = hooks.Bench(driver.parent, build_client("hooks_client", driver), machine)

    bare_ns = last_ready_ns(bench, None)

    assert bare_ns >= CONTEXT_NS
    assert last_ready_ns(bench, shim_path()) < MOST_OF_BARE * bare_ns
