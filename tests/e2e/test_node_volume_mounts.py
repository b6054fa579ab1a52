"""GPUs named by mounts, to a runtime that trusts no variable of a pod's (`make e2e-node`)."""

from collections.abc import Iterator

import pytest

from deviceplugin.store.container_answer import LIST_DIRECTORY, VISIBLE_DEVICES
from support.node.containerd import DebiansContainerd
from support.node.programs import LOOK_INSIDE, SECOND_PROCESS
from support.node.real import MARKS, RealNode, example_config, idle_pod, running_node
from support.node.runc import LIBRARIES
from support.node.slices import OUT_OF_MEMORY, assert_slice_holds

PODS = ("vgpu-30", "mps-half")
GPUS = ("a100-80g", "a100-80g")
#: Which GPU of the examples' config each pod gets.
INDEXES = {"vgpu-30": 1, "mps-half": 0}
READ_MOUNTS = "import json; print(json.dumps(open('/proc/mounts').read()))"

pytestmark = MARKS


@pytest.fixture(scope="module")
def node() -> Iterator[RealNode]:
    """A node whose runtime reads mounts, as its settings say; the agent finds that out."""
    containerd = DebiansContainerd(devices_by="volume-mounts")
    with running_node(example_config("auto"), GPUS, containerd, pods=PODS) as node:
        yield node


@pytest.mark.parametrize("name", PODS)
def test_a_pod_sees_its_slice_of_the_gpu_that_a_mount_names(node: RealNode, name: str) -> None:
    assert_slice_holds(node, name)

    inside = node.execute(name, LOOK_INSIDE)
    gpu = node.machine.devices[INDEXES[name]].uuid
    assert node.wait_said(name, "view")["uuid"] == gpu
    named = [path for path in inside["mounts"] if path.startswith(f"{LIST_DIRECTORY}/")]
    assert named == [f"{LIST_DIRECTORY}/{gpu}"]
    assert inside["env"][VISIBLE_DEVICES] == LIST_DIRECTORY
    assert node.execute(name, SECOND_PROCESS) == OUT_OF_MEMORY


@pytest.mark.parametrize("name", PODS)
def test_a_restarted_container_has_its_gpu_again(node: RealNode, name: str) -> None:
    node.restart_containers(name)

    assert_slice_holds(node, name)
    gpu = node.machine.devices[INDEXES[name]].uuid
    assert node.wait_said(name, "view")["uuid"] == gpu


def test_a_variable_of_the_pods_own_brings_no_gpu(node: RealNode) -> None:
    pod = idle_pod("claims-all")
    (container,) = pod["spec"]["containers"]
    container["env"] = [{"name": VISIBLE_DEVICES, "value": "all"}]

    node.put(pod)

    mounts = node.execute("claims-all", READ_MOUNTS)
    assert not any(part in mounts for part in (*LIBRARIES, "vgpu"))
    node.delete("claims-all")
