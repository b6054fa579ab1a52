"""The agent's own CDI spec under a real containerd 2, chosen by ``deviceListStrategy: auto``.

What the kubelet says where the spec cannot be written is of the long form, since it tries again so
late; the gate asks the agent in integration/deviceplugin/cdi.
"""

import json
from collections.abc import Iterator

import pytest

from deviceplugin.config.device_forms import DEFAULT_CDI_KIND
from support.node.containerd import CdiContainerd
from support.node.parts import build_containerd
from support.node.programs import LOOK_INSIDE
from support.node.real import MARKS, RealNode, example_config, running_node
from support.node.runc import LIBRARIES, LIBRARY_DIRECTORY
from support.node.slices import assert_slice_holds

PODS = ("vgpu-30", "mps-half")
GPUS = ("a100-80g", "a100-80g")
INDEXES = {"vgpu-30": 1, "mps-half": 0}
SPEC = "/run/cdi/k8s.device-plugin.nvidia.com-gpu.json"

pytestmark = MARKS


@pytest.fixture(scope="module")
def node() -> Iterator[RealNode]:
    containerd = CdiContainerd(build_containerd())
    with running_node(example_config("auto"), GPUS, containerd, pods=PODS) as node:
        yield node


@pytest.mark.parametrize("name", PODS)
def test_a_pod_sees_its_slice_of_the_gpu_that_the_agents_spec_brought(
    node: RealNode, name: str
) -> None:
    assert_slice_holds(node, name)

    inside = node.execute(name, LOOK_INSIDE)
    gpu = node.machine.devices[INDEXES[name]].uuid
    assert node.wait_said(name, "view")["uuid"] == gpu
    assert inside["env"]["VGPU_SIM_VISIBLE"] == gpu
    assert inside["env"]["NVIDIA_VISIBLE_DEVICES"] == "void"
    for library in LIBRARIES:
        assert inside["mounts"][f"{LIBRARY_DIRECTORY}/{library}"] == "ro"
    spec = json.loads(node.inside(SPEC).read_text())
    assert spec["kind"] == DEFAULT_CDI_KIND


def test_a_restarted_container_has_a_spec_that_was_removed_again(node: RealNode) -> None:
    restarts = node.restarts("vgpu-30")
    node.inside(SPEC).unlink()

    node.end_container("vgpu-30")

    node.wait_restarted(restarts)
    assert_slice_holds(node, "vgpu-30")
    assert node.inside(SPEC).is_file()


@pytest.mark.long
def test_a_container_whose_spec_cannot_be_put_back_is_refused_in_a_sentence(node: RealNode) -> None:
    restarts = node.restarts("mps-half")
    node.inside(SPEC).unlink()
    node.inside(SPEC).mkdir()
    try:
        node.end_container("mps-half")
        refusal = node.wait_refused_start("mps-half")
        assert "k8s.device-plugin.nvidia.com-gpu.json cannot be written" in refusal
    finally:
        node.inside(SPEC).rmdir()

    node.wait_restarted(restarts)
    assert_slice_holds(node, "mps-half")
