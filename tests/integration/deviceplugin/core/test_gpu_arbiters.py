"""The node agent runs an arbiter for every GPU shared in time, and admission never waits for it."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from deviceplugin.core import gpu_arbiters
from libvgpu.limits import ComputeMode
from support.node.in_process import CONFIG, MPS_GPU, InProcessNode, running_node
from support.shim.arbiters import GpuLocks, NotedArbiter
from support.waiting import wait_until

# One GPU of family vgpu, so that its containers are neighbours.
STRICT_CONFIG = CONFIG.replace("elastic", "strict").replace("[1, 2]", "[1]")
RULE = "limits:\n- {match: {namespace: default, container: c0}, core: 10}\n"


class Arbiters:
    """What the agent made, in place of real arbiters."""

    def __init__(self) -> None:
        self.locks = GpuLocks()
        self.made: list[NotedArbiter] = []
        self.may_go_on = threading.Event()
        self.may_go_on.set()

    def make(self) -> NotedArbiter:
        self.may_go_on.wait()
        self.made.append(NotedArbiter())
        return self.made[-1]

    def weights(self) -> list[list[int]]:
        """The weights of each GPU that is divided now."""
        return sorted(sorted(a.weights.values()) for a in self.made if a.weights)


@pytest.fixture
def arbiters(monkeypatch: pytest.MonkeyPatch) -> Arbiters:
    made = Arbiters()
    monkeypatch.setattr(gpu_arbiters, "Arbiter", made.make)
    monkeypatch.setattr(gpu_arbiters, "hold_gpu", made.locks.hold)
    return made


@pytest.fixture
def node(arbiters: Arbiters, monkeypatch: pytest.MonkeyPatch) -> Iterator[InProcessNode]:
    with running_node(monkeypatch) as node:
        node.config.write_text(STRICT_CONFIG)
        node.stop_agent()
        node.start_agent()
        node.wait_registered()
        try:
            yield node
        finally:
            arbiters.may_go_on.set()


def pair(percent: int) -> dict[str, int]:
    return {"vgpu-core": percent, "vgpu-memory": 2}


def test_it_follows_containers_as_they_come_change_and_go(
    node: InProcessNode, arbiters: Arbiters
) -> None:
    alone = node.admit("alone", pair(70))
    assert node.limit(alone).compute_mode is ComputeMode.STRICT
    second = node.admit("second", pair(30))
    wait_until(lambda: arbiters.weights() == [[30, 70]])

    node.config.write_text(STRICT_CONFIG + RULE)
    wait_until(lambda: arbiters.weights() == [[10, 10]])

    node.kubelet.finish(second)
    wait_until(lambda: arbiters.weights() == [])
    wait_until(lambda: arbiters.locks.taken == set())


def test_containers_under_mps_have_none(node: InProcessNode, arbiters: Arbiters) -> None:
    for name in ("a", "b"):
        node.admit(name, {"mps-core": 30, "mps-memory": 2})
    node.admit("c", pair(50), pair(50))

    wait_until(lambda: arbiters.weights() == [[50, 50]])
    assert MPS_GPU.uuid not in arbiters.locks.taken


def test_a_restarted_agent_finds_its_containers_again(
    node: InProcessNode, arbiters: Arbiters
) -> None:
    node.admit("a", pair(30), pair(70))
    wait_until(lambda: arbiters.weights() == [[30, 70]])

    node.stop_agent()
    assert (arbiters.weights(), arbiters.locks.taken) == ([], set())
    node.start_agent()

    wait_until(lambda: arbiters.weights() == [[30, 70]])


def test_the_gpu_of_an_agent_that_died_is_taken_once_its_lock_is_free(
    node: InProcessNode, arbiters: Arbiters
) -> None:
    pod = node.admit("a", pair(30), pair(70))
    gpu = node.limit(pod).uuid
    wait_until(lambda: arbiters.weights() == [[30, 70]])
    node.stop_agent()
    arbiters.locks.taken.add(gpu)  # somebody else has it
    node.start_agent()
    node.wait_registered()
    time.sleep(0.6)  # two looks
    assert arbiters.weights() == []

    arbiters.locks.taken.remove(gpu)

    wait_until(lambda: arbiters.weights() == [[30, 70]])


def test_admission_does_not_wait_for_an_arbiter(node: InProcessNode, arbiters: Arbiters) -> None:
    arbiters.may_go_on.clear()
    node.admit("first", pair(30), pair(30))
    wait_until(lambda: arbiters.locks.taken != set())  # and is stuck now

    pod = node.admit("second", pair(20))

    (host,) = {
        m.host_path
        for m in node.kubelet.run_options(pod, "c0").mounts
        if m.container_path == "/run/vgpu/ring"
    }
    assert Path(host).is_fifo()
    assert arbiters.made == []
