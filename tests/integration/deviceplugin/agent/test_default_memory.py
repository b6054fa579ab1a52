"""What a pod gets that asks for one half alone, also moments after those ended that had memory."""

import math

import pytest

from deviceplugin.core import container_start
from deviceplugin.testing import AdmissionFailed
from libvgpu.limits import ComputeMode
from support.node.in_process import GIB, InProcessNode

pytestmark = pytest.mark.usefixtures("in_world")

CORE = {"vgpu-core": 50}
ALL_MEMORY = {"vgpu-memory": 16}


def test_it_starts_when_their_end_is_known(node: InProcessNode) -> None:
    pods = [node.admit(f"old-{n}", ALL_MEMORY) for n in range(2)]
    for pod in pods:
        node.kubelet.run_options(pod, "c0")
        node.kubelet.finish(pod)

    # Only core is asked for, so nobody has said of any memory that it is free.
    pod = node.admit("lone", CORE)

    assert node.limit(pod).memory_limit_bytes == 8 * GIB


def test_it_does_not_wait_for_those_that_run(
    node: InProcessNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(container_start, "MEMORY_WAIT_S", math.inf)
    for n in range(2):
        node.admit(f"old-{n}", ALL_MEMORY)
    pod = node.admit("lone", CORE)

    with pytest.raises(AdmissionFailed, match="8 units of 1 GiB, but 0 are free"):
        node.kubelet.run_options(pod, "c0")


def test_memory_alone_is_served_in_family_vgpu_and_refused_in_family_mps(
    node: InProcessNode,
) -> None:
    served = node.admit("served", {"vgpu-memory": 4})
    refused = node.admit("refused", {"mps-memory": 4})

    limit = node.limit(served)
    assert (limit.memory_limit_bytes, limit.compute_mode) == (4 * GIB, ComputeMode.ELASTIC)
    said = (
        "nvidia.com/mps-memory: 4 without nvidia.com/mps-core cannot be honoured, since MPS "
        "reserves no left-over compute; ask for nvidia.com/mps-core too, or for memory alone of a "
        "GPU of family vgpu"
    )
    with pytest.raises(AdmissionFailed, match=said):
        node.kubelet.run_options(refused, "c0")
