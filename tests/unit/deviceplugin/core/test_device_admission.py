"""Whole devices without a kubelet: since when they are held, and what a start waits for."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from deviceplugin.config.loading import parse_config
from deviceplugin.core.parts import Sources
from deviceplugin.core.service import SliceService
from deviceplugin.model.allocations import Owner
from deviceplugin.model.gpus import Gpu
from deviceplugin.policy.devices.layout import lay_out
from deviceplugin.policy.pairing.podresources_listing import Listed
from deviceplugin.store.checkpoint import Checkpoint
from deviceplugin.store.node_state import NodeState
from deviceplugin.store.slice_files import SliceStore
from libvgpu.errors import AllocationRefused, MpsError
from libvgpu.limits import Family

GPU = "nvidia.com/gpu"
GPUS = tuple(Gpu(n, f"GPU-{n}", "test", 16 << 30) for n in range(2))
WHOLE = "version: v1\n"
FRACTIONS = "version: v1\nsharing: {fractional: [{family: vgpu}]}\n"


class Node:
    def __init__(self, folder: Path) -> None:
        (folder / "state").mkdir()
        self.listing: list[Listed] = []
        self.waited: list[tuple[Sequence[str], bool]] = []
        self.mps_fails = False
        store = SliceStore(folder / "run", folder / "state")
        store.prepare()
        state = NodeState(Checkpoint(folder / "state"), lay_out(parse_config(WHOLE), GPUS), GPUS)
        self.service = SliceService(state, store, (), Sources(lambda: self.listing), self.wait)

    def wait(self, uuids: Sequence[str], under_mps: bool, within_s: float) -> None:
        self.waited.append((uuids, under_mps))
        if self.mps_fails:
            raise MpsError("the daemon does not end")

    def edit(self, text: str) -> None:
        config = parse_config(text)
        self.service.follow_config(config, lay_out(config, GPUS))

    def shared(self) -> list[str]:
        return [shared.gpu.uuid for shared in self.service.layout.of_family(Family.VGPU)]


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_a_device_is_held_from_its_allocate_on(node: Node) -> None:
    node.service.devices.allocate(GPU, ["GPU-0"])

    node.edit(FRACTIONS)  # before podresources has shown anything

    assert node.shared() == ["GPU-1"]
    assert [unit.name for unit in node.service.device_units(GPU)[1]] == ["GPU-0"]
    with pytest.raises(AllocationRefused, match="is not offered now"):
        node.service.devices.allocate(GPU, ["GPU-1"])


def test_a_start_waits_until_the_gpu_is_free_of_mps(node: Node) -> None:
    node.service.devices.allocate(GPU, ["GPU-1"])
    node.listing = [Listed(Owner("ns", "pod", "c"), frozenset(), ((GPU, "GPU-1"),))]

    node.service.devices.pre_start(GPU, ["GPU-1"])

    assert node.waited == [(["GPU-1"], False)]
    node.mps_fails = True
    with pytest.raises(AllocationRefused, match="the daemon does not end"):
        node.service.devices.pre_start(GPU, ["GPU-1"])


def test_a_device_that_has_gone_does_not_start(node: Node) -> None:
    with pytest.raises(AllocationRefused, match="GPU-9 is not on this node any more"):
        node.service.devices.pre_start(GPU, ["GPU-9"])
