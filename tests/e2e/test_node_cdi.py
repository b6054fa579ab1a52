"""On a containerd that speaks CDI, GPUs come by name alone: its runc is runc (`make e2e-node`).

containerd 2 is built from its module, like the kubelet. What `node.cdi` writes stands in for a spec
that somebody else wrote, such as ``nvidia-ctk``; the agent's own is in `test_node_own_spec`.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.node import cdi as node_cdi
from support.node.containerd import CdiContainerd
from support.node.parts import build_containerd
from support.node.programs import LOOK_INSIDE, SECOND_PROCESS
from support.node.real import MARKS, RealNode, example, example_config, idle_pod, running_node
from support.node.runc import LIBRARIES, LIBRARY_DIRECTORY
from support.node.slices import OUT_OF_MEMORY, assert_slice_holds

PODS = ("vgpu-30", "mps-half")
GPUS = ("a100-80g", "a100-80g")
#: Which GPU of the examples' config each pod gets.
INDEXES = {"vgpu-30": 1, "mps-half": 0, "vgpu-70": 1}
OWN_SPEC = "/run/cdi/k8s.device-plugin.nvidia.com-gpu.json"

pytestmark = MARKS


@pytest.fixture(scope="module")
def node() -> Iterator[RealNode]:
    """A node whose agent names GPUs by CDI and whose runtime knows these names."""
    containerd = CdiContainerd(build_containerd())
    with running_node(example_config("cdi-cri"), GPUS, containerd, write_spec, pods=PODS) as node:
        yield node


def write_spec(node: RealNode) -> Path:
    """Writes the CDI spec of the node's GPUs where its runtime looks for it."""
    return node_cdi.write(node.inside(node_cdi.DIRECTORY), node.machine)


@pytest.mark.parametrize("name", PODS)
def test_a_pod_sees_its_slice_of_the_gpu_that_cdi_brought(node: RealNode, name: str) -> None:
    assert_slice_holds(node, name)

    inside = node.execute(name, LOOK_INSIDE)
    gpu = node.machine.devices[INDEXES[name]].uuid
    assert node.wait_said(name, "view")["uuid"] == gpu
    assert inside["env"]["VGPU_SIM_VISIBLE"] == gpu
    assert "NVIDIA_VISIBLE_DEVICES" not in inside["env"]
    for library in LIBRARIES:
        assert inside["mounts"][f"{LIBRARY_DIRECTORY}/{library}"] == "ro"
    assert inside["mounts"]["/run/vgpu/limits"] == "ro"
    assert node.execute(name, SECOND_PROCESS) == OUT_OF_MEMORY


def test_a_pod_that_asks_for_nothing_gets_no_driver(node: RealNode) -> None:
    node.put(idle_pod("plain"))

    mounts = node.execute("plain", "import json; print(json.dumps(open('/proc/mounts').read()))")

    assert not any(part in mounts for part in (*LIBRARIES, "vgpu"))
    node.delete("plain")


def test_a_restarted_container_has_its_gpu_again(node: RealNode) -> None:
    gpu = node.wait_said("mps-half", "view")["uuid"]

    node.restart_containers("mps-half")

    assert_slice_holds(node, "mps-half")
    assert node.wait_said("mps-half", "view")["uuid"] == gpu


def test_where_somebody_elses_spec_goes_the_agents_own_takes_its_place(node: RealNode) -> None:
    theirs = node.inside(f"{node_cdi.DIRECTORY}/{node_cdi.FILE}")
    ours = node.inside(OWN_SPEC)
    named = f'"name": "{node.machine.devices[1].uuid}"'
    assert named not in ours.read_text()  # a runtime refuses a device that two specs have
    restarts = node.restarts("vgpu-30")

    theirs.unlink()
    node.end_container("vgpu-30")
    node.wait_restarted(restarts)

    assert_slice_holds(node, "vgpu-30")
    assert named in ours.read_text()


def test_the_names_may_travel_in_an_annotation(node: RealNode) -> None:
    containers = {name: node.container(name)["containerID"] for name in PODS}
    node.stop("agent")
    node.change_config(example_config("cdi-annotations"))
    node.start_agent()

    node.put(example("vgpu-70"))

    assert_slice_holds(node, "vgpu-70")
    assert node.wait_said("vgpu-70", "view")["uuid"] == node.machine.devices[1].uuid
    assert {name: node.container(name)["containerID"] for name in PODS} == containers
