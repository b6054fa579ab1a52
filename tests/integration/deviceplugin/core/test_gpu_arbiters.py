"""Admission never waits for an arbiter, however long one takes to start."""

import threading
from pathlib import Path

import pytest

from deviceplugin.core import gpu_arbiters
from support.node.in_process import CONFIG, InProcessNode, running_node
from support.shim.arbiters import GpuLocks, NotedArbiter
from support.waiting import wait_until

# One GPU of family vgpu, so that its containers are neighbours.
ONE_GPU = CONFIG.replace("[1, 2]", "[1]")


def mounted_ring(node: InProcessNode, name: str, percent: int) -> Path:
    """Admits a pod, starts its container and returns the host's path of its ring."""
    options = node.kubelet.run_options(
        node.admit(name, {"vgpu-core": percent, "vgpu-memory": 2}), "c0"
    )
    return next(Path(m.host_path) for m in options.mounts if m.container_path == "/run/vgpu/ring")


def test_admission_does_not_wait_for_an_arbiter(monkeypatch: pytest.MonkeyPatch) -> None:
    locks, may_go_on = GpuLocks(), threading.Event()

    def slow() -> NotedArbiter:
        may_go_on.wait()
        return NotedArbiter()

    monkeypatch.setattr(gpu_arbiters, "Arbiter", slow)
    monkeypatch.setattr(gpu_arbiters, "hold_gpu", locks.hold)
    with running_node(monkeypatch, config=ONE_GPU) as node:
        try:
            for name in ("first", "second"):
                mounted_ring(node, name, 30)
            wait_until(lambda: locks.taken != set())  # and is stuck now

            assert mounted_ring(node, "third", 20).is_fifo()
        finally:
            may_go_on.set()
