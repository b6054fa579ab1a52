"""The agent says that work outlasted its windows, and does not flood the log with it."""

import logging
from pathlib import Path

import pytest

from deviceplugin.core import gpu_arbiters
from deviceplugin.core.gpu_arbiters import OVERRUNS_EVERY_S, NodeArbiters
from libvgpu import region
from libvgpu.limits import ContainerLimits, DeviceLimit, Family
from support.shim.arbiters import GpuLocks, NotedArbiter


def test_overruns_are_told_at_once_and_then_once_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # GIVEN two containers on one GPU
    caplog.set_level(logging.WARNING, "deviceplugin")
    (tmp_path / "allocations").mkdir()
    for name in ("one", "two"):
        limits = ContainerLimits(name, Family.VGPU, (DeviceLimit("GPU-a", 1 << 30),))
        region.create(tmp_path / "allocations" / name, limits)
    arbiter, now_s = NotedArbiter(), [0.0]
    monkeypatch.setattr(gpu_arbiters, "Arbiter", lambda: arbiter)
    monkeypatch.setattr(gpu_arbiters, "hold_gpu", GpuLocks().hold)
    arbiters = NodeArbiters(tmp_path, lambda: now_s[0])

    def told_after(seconds: float, overruns: int) -> list[tuple[object, object]]:
        caplog.clear()
        now_s[0] += seconds
        arbiter.overruns = overruns
        arbiters.look()
        return [
            (fields["times"], fields["longest_ms"])
            for fields in (vars(record)["fields"] for record in caplog.records)
        ]

    # WHEN work outlasts its windows again and again, THEN it is summed up
    assert told_after(0, 0) == []
    assert told_after(1, 2) == [(2, 10)]
    assert told_after(1, 9) == []
    assert told_after(OVERRUNS_EVERY_S, 12) == [(10, 60)]
    assert told_after(OVERRUNS_EVERY_S, 12) == []
