"""Whole devices without a kubelet: since when they are held, and what a start waits for."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from deviceplugin.config.loading import parse_config
from deviceplugin.model.agent_config import AgentConfig
from deviceplugin.model.allocations import Owner
from deviceplugin.policy.pairing.podresources_listing import Listed
from libvgpu.errors import AllocationRefused, MpsError
from libvgpu.limits import Family
from support.node.core import AgentCore, fractional, some_gpus

GPU = "nvidia.com/gpu"
WHOLE = parse_config("version: v1\n")
FRACTIONS = fractional("family: vgpu")


class Node(AgentCore):
    def __init__(self, folder: Path) -> None:
        self.waited: list[tuple[Sequence[str], bool]] = []
        self.mps_fails = False
        super().__init__(folder, WHOLE, some_gpus(2))

    def start(self, config: AgentConfig, **more: Any) -> None:
        super().start(config, wait_for_mps=self.wait, **more)

    def wait(self, uuids: Sequence[str], under_mps: bool, within_s: float) -> None:
        self.waited.append((uuids, under_mps))
        if self.mps_fails:
            raise MpsError("the daemon does not end")

    def shared(self) -> list[str]:
        return [shared.gpu.uuid for shared in self.service.layout.of_family(Family.VGPU)]


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_a_device_is_held_from_its_allocate_on(node: Node) -> None:
    node.service.devices.allocate(GPU, ["GPU-0"])

    node.follow(FRACTIONS)  # before podresources has shown anything

    assert node.shared() == ["GPU-1"]
    assert [unit.name for unit in node.service.device_units(GPU)[1]] == ["GPU-0"]
    with pytest.raises(AllocationRefused, match="is not offered now"):
        node.service.devices.allocate(GPU, ["GPU-1"])


def test_a_start_waits_until_the_gpu_is_free_of_mps(node: Node) -> None:
    node.service.devices.allocate(GPU, ["GPU-1"])
    node.listed = [Listed(Owner("ns", "pod", "c"), frozenset(), ((GPU, "GPU-1"),))]

    node.service.devices.pre_start(GPU, ["GPU-1"])

    assert node.waited == [(["GPU-1"], False)]
    node.mps_fails = True
    with pytest.raises(AllocationRefused, match="the daemon does not end"):
        node.service.devices.pre_start(GPU, ["GPU-1"])


def test_a_device_that_has_gone_does_not_start(node: Node) -> None:
    with pytest.raises(AllocationRefused, match="GPU-9 is not on this node any more"):
        node.service.devices.pre_start(GPU, ["GPU-9"])
