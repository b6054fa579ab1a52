"""The service when its config changes: what is announced, kept on disk, and told."""

import logging
from pathlib import Path

import pytest

from deviceplugin.model.units import MOST_UNITS_PER_RESOURCE, Half, gpu_of
from deviceplugin.policy.podresources_listing import Listed
from deviceplugin.store.checkpoint import Checkpoint
from libvgpu import region
from libvgpu.errors import AllocationRefused, VgpuError
from libvgpu.limits import ComputeMode, Family
from support.node.core import AgentCore, fractional, some_gpus

GPUS = some_gpus(2)
BOTH = "family: vgpu, compute: elastic"


class Agent(AgentCore):
    """A service, and what is done to it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, fractional(BOTH), GPUS)

    def show(self) -> list[Listed]:
        raise VgpuError("down")

    def edit(self, share: str) -> None:
        self.follow(fractional(share))

    def offers(self, half: Half, family: Family = Family.VGPU) -> list[str]:
        return [unit.name for unit in self.service.units(family, half)[1] if unit.healthy]

    def take(self, half: Half, count: int, offered: list[str] | None = None) -> set[str]:
        free = self.offers(half) if offered is None else offered
        chosen = self.service.admission.prefer(Family.VGPU, half, free, [], count)
        self.service.admission.allocate(Family.VGPU, half, chosen)
        return set(chosen)

    def compute(self) -> ComputeMode:
        (directory,) = (self.folder / "run" / "allocations").iterdir()
        return region.read_limits(directory).limits.devices[0].compute_mode


@pytest.fixture
def agent(tmp_path: Path) -> Agent:
    return Agent(tmp_path)


def test_a_second_half_that_was_withdrawn_meanwhile_is_announced_as_held(agent: Agent) -> None:
    known = agent.offers(Half.MEMORY)
    core = agent.take(Half.CORE, 10)
    agent.edit("family: mps")
    (uuid,) = {gpu_of(unit) for unit in core}
    assert not [unit for unit in agent.offers(Half.MEMORY) if gpu_of(unit) == uuid]
    revision = agent.service.state.revision

    memory = agent.take(Half.MEMORY, 4, offered=known)  # the kubelet has the old list

    assert {gpu_of(unit) for unit in memory} == {uuid}
    assert agent.service.state.revision > revision
    assert set(agent.offers(Half.MEMORY)) == memory
    with pytest.raises(AllocationRefused, match="no GPU of this node is offered"):
        agent.take(Half.CORE, 10)


def test_units_of_two_configs_never_make_a_list_that_no_kubelet_reads(agent: Agent) -> None:
    agent.edit("family: vgpu, devices: [0], memoryUnit: 1Mi")
    agent.take(Half.CORE, 10)
    held = agent.take(Half.MEMORY, 40)
    assert len(agent.service.units(Family.VGPU, Half.MEMORY)[1]) == 16384

    agent.edit("family: vgpu, devices: [1], memoryUnit: 1Mi")

    listed = {unit.name for unit in agent.service.units(Family.VGPU, Half.MEMORY)[1]}
    assert len(listed) == 16384 + 40 <= MOST_UNITS_PER_RESOURCE
    assert held <= listed


@pytest.mark.parametrize("restarted", [False, True])
def test_compute_of_slices_stays_what_the_config_last_said_of_it(
    agent: Agent, restarted: bool
) -> None:
    agent.take(Half.CORE, 10)
    agent.take(Half.MEMORY, 2)
    assert agent.compute() is ComputeMode.ELASTIC

    agent.edit("family: vgpu, compute: strict")
    assert agent.compute() is ComputeMode.STRICT
    agent.edit(BOTH)
    assert agent.compute() is ComputeMode.ELASTIC
    agent.edit("family: vgpu, compute: strict")

    agent.edit("family: mps")
    assert agent.compute() is ComputeMode.STRICT
    agent.edit("family: vgpu, compute: elastic, memoryUnit: 2Gi")
    if restarted:
        agent.start(fractional("family: vgpu, compute: elastic, memoryUnit: 2Gi"))
    assert agent.compute() is ComputeMode.STRICT, "the GPU drains: nothing of its slices changes"


def test_a_disk_that_takes_nothing_does_not_hold_up_an_edit(
    agent: Agent, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    agent.take(Half.CORE, 10)
    agent.take(Half.MEMORY, 2)

    def full(*changes: object) -> None:
        raise VgpuError("no space left on the disk")

    monkeypatch.setattr(Checkpoint, "record", full)
    with caplog.at_level(logging.INFO, "deviceplugin"):
        agent.edit("family: vgpu, compute: strict")

    assert agent.compute() is ComputeMode.STRICT
    assert "no space left on the disk" in caplog.messages


def test_units_that_have_just_come_are_not_counted_on_yet(agent: Agent) -> None:
    agent.edit("family: vgpu, devices: [0]")
    agent.edit(BOTH)

    assert {gpu_of(unit) for unit in agent.service.state.returned()} == {"GPU-1"}
