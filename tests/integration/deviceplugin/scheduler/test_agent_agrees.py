"""Whatever fits by a plan is admitted by the agent, and its containers start."""

import random
from collections.abc import Iterator

import pytest

from deviceplugin.model.gpus import Gpu
from deviceplugin.model.pod_requests import ContainerKind, ContainerRequest, PodRequest
from deviceplugin.model.units import gpu_of
from deviceplugin.scheduler.search.fit import Plan, Refusal, plan
from deviceplugin.scheduler.search.wishes import NO_WISHES
from deviceplugin.testing import AdmittedPod
from libvgpu.errors import AllocationRefused
from support.node.in_process import GIB
from support.node.watched_agent import WatchedAgent, watched_agent
from support.waiting import wait_until

GPUS = tuple(Gpu(i, f"GPU-{i:08x}-0000-0000-0000-000000000000", "test", 16 * GIB) for i in range(6))
CONFIG = """\
version: v1
sharing: {fractional: [{family: vgpu, memoryUnit: 1Gi}]}
"""
PODS = 40


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Iterator[WatchedAgent]:
    with watched_agent(monkeypatch, GPUS, CONFIG, is_told=True, seed=5) as node:
        yield node


@pytest.fixture
def untold(monkeypatch: pytest.MonkeyPatch) -> Iterator[WatchedAgent]:
    with watched_agent(monkeypatch, GPUS, CONFIG, is_told=False, seed=5) as node:
        yield node


def amounts(chance: random.Random) -> dict[str, int]:
    core, memory = chance.choice(
        ((10, 1), (25, 4), (30, 8), (60, 4), (50, 0), (20, 0), (0, 3), (100, 0), (90, 16), (40, 12),
         (200, 0), (200, 32), (100, 16))
    )  # fmt: skip
    named = {"nvidia.com/vgpu-core": core, "nvidia.com/vgpu-memory": memory}
    return {name: amount for name, amount in named.items() if amount}


def pod(name: str, chance: random.Random, most: int) -> PodRequest:
    count = chance.randint(1, most)
    inits = chance.randint(0, count - 1)
    kinds = [chance.choice((ContainerKind.INIT, ContainerKind.SIDECAR)) for _ in range(inits)]
    kinds += [ContainerKind.APP] * (count - inits)
    return PodRequest(
        name, "default", name,
        tuple(ContainerRequest(f"c{i}", amounts(chance), k) for i, k in enumerate(kinds)),
    )  # fmt: skip


def gpus_of(admitted: AdmittedPod, container: str) -> set[str]:
    units = admitted.container(container).devices.values()
    return {gpu_of(unit) for each in units for unit in each}


def free_units(node: WatchedAgent) -> int:
    return sum(room.core + room.memory for room in node.view().gpus)


def end_half(node: WatchedAgent, running: list[AdmittedPod], chance: random.Random) -> None:
    """Ends half of the pods, and waits until the agent knows of some."""
    before = free_units(node)
    chance.shuffle(running)
    for each in running[len(running) // 2 :]:
        node.node.kubelet.finish(each)
    del running[len(running) // 2 :]
    wait_until(lambda: free_units(node) > before)


def run(node: WatchedAgent, chance: random.Random, most: int) -> tuple[int, int]:
    """Binds random pods that fit; returns how many fitted and how many did not."""
    running: list[AdmittedPod] = []
    fitted = refused = 0
    for number in range(PODS):
        asks = pod(f"p{number}", chance, most)
        view = node.view()
        found = plan(view, asks, NO_WISHES)
        if isinstance(found, Refusal):
            refused += 1
            if running:
                end_half(node, running, chance)
            continue
        assert isinstance(found, Plan)
        fitted += 1
        admitted = node.admit(node.bind(asks, found.chosen))
        running.append(admitted)
        if most > 1:
            for name, gpus in found.chosen.items():
                assert gpus_of(admitted, name) == set(gpus), (asks, found.chosen, view)
    return fitted, refused


def test_single_containers_fit_an_agent_that_knows_nothing(untold: WatchedAgent) -> None:
    fitted, refused = run(untold, random.Random(2), 1)
    assert fitted >= PODS // 2
    assert refused


def test_pods_go_where_they_were_planned(told: WatchedAgent) -> None:
    fitted, refused = run(told, random.Random(3), 4)
    assert fitted >= PODS // 4
    assert refused


def test_what_is_refused_would_have_failed(untold: WatchedAgent) -> None:
    """A node whose sum is enough, and none of whose GPUs is."""
    for number in range(len(GPUS)):
        asks = PodRequest(
            f"u{number}", "default", f"p{number}",
            (ContainerRequest("c", {"nvidia.com/vgpu-core": 60, "nvidia.com/vgpu-memory": 2}),),
        )  # fmt: skip
        untold.admit(untold.bind(asks))
    asks = PodRequest("u", "default", "p", (ContainerRequest("c", {"nvidia.com/vgpu-core": 60}),))
    found = plan(untold.view(), asks, NO_WISHES)
    assert found == Refusal("GPU 0: 40 core free of 60 asked")
    with pytest.raises(AllocationRefused, match="not free on any single GPU"):
        untold.admit(untold.bind(asks))
