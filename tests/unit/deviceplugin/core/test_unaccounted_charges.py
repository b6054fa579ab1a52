"""What is charged besides a ledger stays in `limits` through every other change, and restarts."""

import logging
from pathlib import Path

import pytest

from deviceplugin.model.overrides import Override
from libvgpu.limits import Family
from support.node.core import GIB, AgentCore, fractional, some_gpus

CONFIG = fractional("family: vgpu, memoryUnit: 1Gi")


class ChargedCore(AgentCore):
    """With one container of 4 GiB."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, CONFIG, some_gpus(1))
        self.give(Family.VGPU, 20, 4)

    def charge(self, charged_bytes: int) -> None:
        self.service.set_unaccounted({self.allocation_id: {"GPU-0": charged_bytes}})


@pytest.fixture
def node(tmp_path: Path) -> ChargedCore:
    return ChargedCore(tmp_path)


def test_a_charge_stands_through_other_changes_until_it_is_taken_back(node: ChargedCore) -> None:
    node.charge(GIB)
    assert (node.device.memory_limit_bytes, node.device.unaccounted_bytes) == (4 * GIB, GIB)

    node.service.enforcement.set_override(node.allocation_id, Override(memory_bytes=3 * GIB))
    assert (node.device.memory_limit_bytes, node.device.unaccounted_bytes) == (3 * GIB, GIB)
    node.service.enforcement.set_override(node.allocation_id, None)
    node.follow(CONFIG)
    assert (node.device.memory_limit_bytes, node.device.unaccounted_bytes) == (4 * GIB, GIB)

    node.charge(0)
    assert (node.device.memory_limit_bytes, node.device.unaccounted_bytes) == (4 * GIB, 0)


def test_an_agent_that_starts_takes_over_what_is_charged(node: ChargedCore) -> None:
    node.charge(GIB)

    node.start(CONFIG)

    assert node.device.unaccounted_bytes == GIB


def test_a_charge_is_no_changed_limit(node: ChargedCore, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "deviceplugin")

    node.charge(GIB)
    assert caplog.records == []  # the watch tells of it
    node.service.enforcement.set_override(node.allocation_id, Override(memory_bytes=3 * GIB))

    assert [record.message for record in caplog.records] == ["limits changed"]


def test_a_container_that_has_ended_meanwhile_is_left_out(node: ChargedCore) -> None:
    node.service.set_unaccounted({"0123456789ab": {"GPU-0": GIB}})

    assert node.device.unaccounted_bytes == 0
    assert not (node.folder / "run" / "allocations" / "0123456789ab").exists()
