"""``/v1/slices`` and ``/v1/state`` of an agent as its users start it, on a simulated machine."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from deviceplugin.http.node_slices import NodeSlices, read_page
from support.node.simulated import SimulatedNode
from support.ports import held_port
from support.waiting import PATIENCE_S, wait_until

GIB = 1 << 30


class Served:
    """A node and the address of its agent's pages."""

    def __init__(self, base: Path) -> None:
        self.address = f"127.0.0.1:{held_port()}"
        options = [f"--metrics-address={self.address}", "--node-name=gpu-7"]
        self.node = SimulatedNode(base, "t4*2", options=options)

    def get(self, path: str, method: str = "GET") -> bytes:
        request = urllib.request.Request(f"http://{self.address}{path}", method=method)
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return bytes(answer.read())

    def slices(self) -> NodeSlices:
        return read_page(self.get("/v1/slices"))


@pytest.fixture
def served(short_path: Path) -> Iterator[Served]:
    served = Served(short_path)
    with served.node:
        yield served


def test_gpus_and_slices_of_the_node_can_be_read_and_not_written(served: Served) -> None:
    pod = served.node.admit("train", vgpu_core=30, vgpu_memory=4)
    wait_until(lambda: any(s.meta.pod for s in served.slices().slices), "the pod's name is known")
    page = served.slices()

    assert page.node == "gpu-7"
    assert [(gpu.index, gpu.product, gpu.source) for gpu in page.gpus] == [
        (0, "Tesla T4", "simulated"),
        (1, "Tesla T4", "simulated"),
    ]
    (found,) = page.slices
    assert (found.meta.namespace, found.meta.pod, found.state) == ("default", "train", "idle")
    assert 0 <= page.at - found.meta.created_at < PATIENCE_S
    assert found.limits is not None
    (limit,) = found.limits.devices
    assert [limit.uuid] == served.node.devices(pod)
    assert (limit.core_percent, limit.memory_limit_bytes) == (30, 4 * GIB)

    state = json.loads(served.get("/v1/state"))
    assert [a["owner"] for a in state["allocations"]] == ["default/train/c"]
    for path, method in (
        ("/v1/slices", "POST"),
        ("/v1/state", "DELETE"),
        (f"/v1/allocations/{found.meta.allocation_id}/override", "POST"),
    ):
        with pytest.raises(urllib.error.HTTPError) as refused:
            served.get(path, method)
        assert refused.value.code in (404, 405)
