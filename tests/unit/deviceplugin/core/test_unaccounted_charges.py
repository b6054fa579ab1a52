"""What is charged besides a ledger stays in `limits` through every other change, and restarts."""

import logging
from pathlib import Path

import pytest

from deviceplugin.config.loading import parse_config
from deviceplugin.core.parts import Sources
from deviceplugin.core.service import SliceService
from deviceplugin.model.agent_config import AgentConfig
from deviceplugin.model.gpus import Gpu
from deviceplugin.model.overrides import Override
from deviceplugin.model.units import Half, unit_name
from deviceplugin.policy.devices.layout import lay_out
from deviceplugin.store.checkpoint import Checkpoint
from deviceplugin.store.node_state import NodeState
from deviceplugin.store.slice_files import SliceStore
from libvgpu import region
from libvgpu.limits import DeviceLimit, Family

GIB = 1 << 30
GPU = Gpu(0, "GPU-0", "test", 16 * GIB)
TEXT = "version: v1\nsharing: {fractional: [{family: vgpu, memoryUnit: 1Gi}]}\n"
CONFIG = parse_config(TEXT)


class ChargedCore:
    """An agent's core with one container of 4 GiB, over directories that outlive it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "state").mkdir()
        self.start()
        for half, count in ((Half.CORE, 20), (Half.MEMORY, 4)):
            names = [unit_name(GPU.uuid, half, number) for number in range(count)]
            self.service.admission.allocate(Family.VGPU, half, names)
        ((allocation, _),) = self.service.allocations()
        self.allocation_id = allocation.allocation_id

    def start(self, config: AgentConfig = CONFIG) -> None:
        store = SliceStore(self.folder / "run", self.folder / "state")
        store.prepare()
        self.service = SliceService(
            NodeState(Checkpoint(self.folder / "state"), lay_out(config, (GPU,))),
            store,
            config.rules,
            Sources(list),
        )

    def charge(self, charged_bytes: int) -> None:
        self.service.set_unaccounted({self.allocation_id: {GPU.uuid: charged_bytes}})

    @property
    def device(self) -> DeviceLimit:
        directory = self.folder / "run" / "allocations" / self.allocation_id
        (device,) = region.read_limits(directory).limits.devices
        ((_, limits),) = self.service.allocations()
        assert limits.devices == (device,)
        return device


@pytest.fixture
def node(tmp_path: Path) -> ChargedCore:
    return ChargedCore(tmp_path)


def test_a_charge_stands_through_other_changes_until_it_is_taken_back(node: ChargedCore) -> None:
    node.charge(GIB)
    assert (node.device.memory_limit_bytes, node.device.unaccounted_bytes) == (4 * GIB, GIB)

    node.service.set_override(node.allocation_id, Override(memory_bytes=3 * GIB))
    assert (node.device.memory_limit_bytes, node.device.unaccounted_bytes) == (3 * GIB, GIB)
    node.service.clear_override(node.allocation_id)
    node.service.follow_config(CONFIG, node.service.layout)
    assert (node.device.memory_limit_bytes, node.device.unaccounted_bytes) == (4 * GIB, GIB)

    node.charge(0)
    assert (node.device.memory_limit_bytes, node.device.unaccounted_bytes) == (4 * GIB, 0)


def test_an_agent_that_starts_takes_over_what_is_charged(node: ChargedCore) -> None:
    node.charge(GIB)

    node.start()

    assert node.device.unaccounted_bytes == GIB


def test_a_charge_is_no_changed_limit(node: ChargedCore, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "deviceplugin")

    node.charge(GIB)
    assert caplog.records == []  # the watch tells of it
    node.service.set_override(node.allocation_id, Override(memory_bytes=3 * GIB))

    assert [record.message for record in caplog.records] == ["limits changed"]


def test_a_container_that_has_ended_meanwhile_is_left_out(node: ChargedCore) -> None:
    node.service.set_unaccounted({"0123456789ab": {GPU.uuid: GIB}})

    assert node.device.unaccounted_bytes == 0
    assert not (node.folder / "run" / "allocations" / "0123456789ab").exists()
