"""What pods and the Node are told of what happens in the core."""

import logging
from pathlib import Path

import pytest

from deviceplugin.model.agent_config import AgentConfig
from deviceplugin.model.allocations import Owner
from deviceplugin.model.notices import THIS_NODE, EventReason, Notice
from deviceplugin.model.overrides import Override
from deviceplugin.model.units import Half, unit_name
from deviceplugin.policy.pairing.podresources_listing import Listed
from libvgpu.errors import AllocationRefused
from libvgpu.limits import ComputeMode, Family
from support.node.core import GIB, AgentCore, fractional, some_gpus

OWNER = Owner("team-a", "pod", "main")


class Node(AgentCore):
    """With one container of 8 GiB."""

    def __init__(
        self, folder: Path, caplog: pytest.LogCaptureFixture, family: str = "vgpu"
    ) -> None:
        caplog.set_level(logging.INFO, "deviceplugin")
        self.log = caplog
        super().__init__(folder, self.config(family), some_gpus(1))
        self.units = self.give(Family[family.upper()], 40, 8)

    def config(self, family: str, rules: str = "") -> AgentConfig:
        return fractional(f"family: {family}, memoryUnit: 1Gi", rules)

    def become_known(self, family: Family = Family.VGPU) -> None:
        self.listed = [Listed(OWNER, frozenset(u for us in self.units.values() for u in us))]
        self.service.starts.pre_start(family, Half.CORE, self.units[Half.CORE])

    @property
    def notices(self) -> list[Notice]:
        found = [record.__dict__["notice"] for record in self.log.records]
        return [notice for notice in found if notice is not None]


@pytest.fixture
def node(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Node:
    return Node(tmp_path, caplog)


def test_a_changed_limit_is_told_of_its_container_with_old_new_and_cause(node: Node) -> None:
    node.service.enforcement.set_override(node.allocation_id, Override(core_percent=30))
    assert node.notices == [], "good news for a container that nobody knows yet"
    node.become_known()

    node.service.enforcement.set_override(
        node.allocation_id, Override(20, 4 * GIB, ComputeMode.ELASTIC)
    )

    text = "GPU memory 8 GiB to 4 GiB, compute 30% to 20% held strict to elastic, by vgpuctl set"
    assert node.notices == [Notice(EventReason.LIMITS_CHANGED, text, OWNER)]


def test_what_waits_under_mps_is_told_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    node = Node(tmp_path, caplog, "mps")
    node.become_known(Family.MPS)

    node.service.enforcement.set_override(node.allocation_id, Override(core_percent=20))

    (told,) = node.notices
    assert told.text == (
        "GPU memory 8 GiB to 8 GiB, compute 40% to 20%, by vgpuctl set; "
        "when its processes start again: core 40 to 20"
    )


def test_a_raise_that_does_not_fit_is_told_of_its_container(node: Node) -> None:
    node.become_known()
    config = node.config("vgpu", "limits: [{memory: 20Gi, allowRaise: true}]\n")

    node.follow(config)

    (told,) = node.notices
    assert (told.reason, told.subject) == (EventReason.RAISE_REFUSED, OWNER)
    assert "at most 16 GiB is allowed" in told.text


def test_a_refused_start_is_told_of_its_container_or_the_node(node: Node) -> None:
    strange = [unit_name("GPU-0", Half.CORE, n) for n in (98, 99)]
    for listed in ([], [Listed(OWNER, frozenset(strange))]):
        node.listed = listed
        with pytest.raises(AllocationRefused):
            node.service.starts.pre_start(Family.VGPU, Half.CORE, strange)

    assert [(n.reason, n.subject) for n in node.notices] == [
        (EventReason.CONTAINER_START_REFUSED, THIS_NODE),
        (EventReason.CONTAINER_START_REFUSED, OWNER),
    ]


def test_a_gpu_that_is_unhealthy_is_told_of_the_node_and_that_it_is_healthy_again(
    node: Node,
) -> None:
    node.service.set_unhealthy({"GPU-0": "XID 79"})
    node.service.set_unhealthy({})

    unhealthy = "GPU GPU-0 is unhealthy, so its units are withdrawn: XID 79"
    healthy = "GPU GPU-0 is healthy again, and its units are offered"
    assert node.notices == [
        Notice(EventReason.GPU_UNHEALTHY, unhealthy, THIS_NODE),
        Notice(EventReason.GPU_HEALTHY, healthy, THIS_NODE),
    ]


def test_a_gpu_that_drains_is_told_of_the_node_and_what_it_becomes(node: Node) -> None:
    node.follow(node.config("mps"))
    node.follow(node.config("vgpu"))

    strict = "vgpu strict by units of 1 GiB"
    text = f"GPU GPU-0 is {strict} until 1 slices have ended, then mps by units of 1 GiB"
    assert node.notices == [
        Notice(EventReason.GPU_DRAINING, text, THIS_NODE),
        Notice(EventReason.GPU_SHARING_CHANGED, f"GPU GPU-0 is {strict}", THIS_NODE),
    ]
