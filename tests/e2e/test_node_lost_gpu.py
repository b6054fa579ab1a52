"""An agent starts on a node that has lost GPUs: the others serve (`make e2e-node`)."""

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from libvgpu.sim import faults
from support.node.real import MARKS, RealNode, example, example_config, running_node
from support.node.slices import GIB, assert_slice_holds
from support.waiting import wait_until

PODS = ("vgpu-30", "vgpu-70", "mps-half")
GPUS = ("a100-80g",) * 4
DEVICES = {"mps": [0, 1], "vgpu": [2, 3]}
LOST_MPS, LOST_VGPU = 0, 2
#: Which GPU is left to each family.
LEFT = {"mps": 1, "vgpu": 3}

pytestmark = MARKS


def agent_config() -> dict[str, Any]:
    """The examples' config, with two GPUs of each family."""
    config = example_config()
    for entry in config["sharing"]["fractional"]:
        entry["devices"] = DEVICES[entry["family"]]
    return config


def lose_gpus(node: RealNode) -> None:
    """Has GPUs of both families fall off the bus."""
    for index in (LOST_MPS, LOST_VGPU):
        faults.inject_lost(node.machine, index)


def small_pod(name: str) -> dict[str, Any]:
    """Returns a pod that fits onto any GPU of family vgpu that is not full."""
    pod = example("vgpu-30")
    pod["metadata"]["name"] = name
    (container,) = pod["spec"]["containers"]
    container["resources"]["limits"] = {"nvidia.com/vgpu-core": 1, "nvidia.com/vgpu-memory": 1}
    return pod


@pytest.fixture(scope="module")
def node() -> Iterator[RealNode]:
    """A node that had lost GPUs before anything of it ran."""
    with running_node(agent_config(), GPUS, prepare=lose_gpus, pods=PODS) as node:
        yield node


@pytest.mark.parametrize("name", PODS)
def test_a_pod_starts_on_the_gpu_that_is_left(node: RealNode, name: str) -> None:
    assert_slice_holds(node, name)

    left = node.machine.devices[LEFT[name.partition("-")[0]]]
    assert node.wait_said(name, "view")["uuid"] == left.uuid


def test_a_lost_gpu_is_not_offered(node: RealNode) -> None:
    node.wait_said("vgpu-30", "view")
    node.wait_said("vgpu-70", "view")  # the two have all of the GPU that is left

    node.put(small_pod("one-more"))

    status = node.wait_judged("one-more")
    assert status["reason"] == "UnexpectedAdmissionError"
    assert "Requested: 1, Available: 0" in status["message"]
    node.delete("one-more")


def test_a_gpu_that_comes_back_is_offered_without_a_restart(node: RealNode) -> None:
    faults.recover(node.machine, LOST_VGPU)

    tries = (f"late-{number}" for number in itertools.count())

    def runs() -> str:
        """The kubelet refuses for good what comes too early, so each pod has a name of its own."""
        name = next(tries)
        node.put(small_pod(name))
        if node.wait_judged(name)["phase"] == "Running":
            return name
        node.delete(name)
        return ""

    late = wait_until(runs, "a pod on the GPU that is back")
    assert_slice_holds(node, late, limit_bytes=GIB)
    assert node.wait_said(late, "view")["uuid"] == node.machine.devices[LOST_VGPU].uuid
