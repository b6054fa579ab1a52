"""What pods and the Node are told of what happens in the core."""

import logging
from pathlib import Path

import pytest

from deviceplugin.config.loading import parse_config
from deviceplugin.core.parts import Sources
from deviceplugin.core.service import SliceService
from deviceplugin.model.agent_config import AgentConfig
from deviceplugin.model.allocations import Owner
from deviceplugin.model.gpus import Gpu
from deviceplugin.model.notices import THIS_NODE, EventReason, Notice
from deviceplugin.model.overrides import Override
from deviceplugin.model.units import Half, unit_name
from deviceplugin.policy.devices.layout import lay_out
from deviceplugin.policy.pairing.podresources_listing import Listed
from deviceplugin.store.checkpoint import Checkpoint
from deviceplugin.store.node_state import NodeState
from deviceplugin.store.slice_files import SliceStore
from libvgpu.errors import AllocationRefused
from libvgpu.limits import ComputeMode, Family

GIB = 1 << 30
GPU = Gpu(0, "GPU-0", "test", 16 * GIB)
OWNER = Owner("team-a", "pod", "main")


class Node:
    """An agent's core with one container of 8 GiB."""

    def __init__(self, folder: Path, family: str = "vgpu") -> None:
        (folder / "state").mkdir()
        store = SliceStore(folder / "run", folder / "state")
        store.prepare()
        self.listed: list[Listed] = []
        config = self.config(family)
        self.service = SliceService(
            NodeState(Checkpoint(folder / "state"), lay_out(config, (GPU,))),
            store,
            config.rules,
            Sources(self.list),
        )
        self.units = {
            half: [unit_name(GPU.uuid, half, n) for n in range(count)]
            for half, count in ((Half.CORE, 40), (Half.MEMORY, 8))
        }
        for half, names in self.units.items():
            self.service.admission.allocate(Family[family.upper()], half, names)
        ((allocation, _),) = self.service.allocations()
        self.allocation_id = allocation.allocation_id

    def config(self, family: str, rules: str = "") -> AgentConfig:
        text = f"version: v1\nsharing: {{fractional: [{{family: {family}, memoryUnit: 1Gi}}]}}\n"
        return parse_config(text + rules)

    def list(self) -> list[Listed]:
        return self.listed

    def become_known(self) -> None:
        self.listed = [Listed(OWNER, frozenset(u for us in self.units.values() for u in us))]
        self.service.starts.pre_start(Family.VGPU, Half.CORE, self.units[Half.CORE])


@pytest.fixture
def node(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Node:
    caplog.set_level(logging.INFO, "deviceplugin")
    return Node(tmp_path)


def notices(caplog: pytest.LogCaptureFixture) -> list[Notice]:
    found = [record.__dict__["notice"] for record in caplog.records]
    return [notice for notice in found if notice is not None]


def test_a_changed_limit_is_told_of_its_container_with_old_new_and_cause(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    node.service.set_override(node.allocation_id, Override(core_percent=30))
    assert notices(caplog) == [], "good news for a container that nobody knows yet"
    node.become_known()

    node.service.set_override(node.allocation_id, Override(20, 4 * GIB, ComputeMode.ELASTIC))

    text = "GPU memory 8 GiB to 4 GiB, compute 30% to 20% held strict to elastic, by vgpuctl set"
    assert notices(caplog) == [Notice(EventReason.LIMITS_CHANGED, text, OWNER)]


def test_what_waits_under_mps_is_told_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "deviceplugin")
    node = Node(tmp_path, "mps")
    node.listed = [Listed(OWNER, frozenset(u for us in node.units.values() for u in us))]
    node.service.starts.pre_start(Family.MPS, Half.CORE, node.units[Half.CORE])

    node.service.set_override(node.allocation_id, Override(core_percent=20))

    (told,) = notices(caplog)
    assert told.text == (
        "GPU memory 8 GiB to 8 GiB, compute 40% to 20%, by vgpuctl set; "
        "when its processes start again: core 40 to 20"
    )


def test_a_raise_that_does_not_fit_is_told_of_its_container(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    node.become_known()
    config = node.config("vgpu", "limits: [{memory: 20Gi, allowRaise: true}]\n")

    node.service.follow_config(config, node.service.layout)

    (told,) = notices(caplog)
    assert (told.reason, told.subject) == (EventReason.RAISE_REFUSED, OWNER)
    assert "at most 16 GiB is allowed" in told.text


def test_a_refused_start_is_told_of_its_container_or_the_node(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    strange = [unit_name(GPU.uuid, Half.CORE, n) for n in (98, 99)]
    for listed in ([], [Listed(OWNER, frozenset(strange))]):
        node.listed = listed
        with pytest.raises(AllocationRefused):
            node.service.starts.pre_start(Family.VGPU, Half.CORE, strange)

    assert [(n.reason, n.subject) for n in notices(caplog)] == [
        (EventReason.CONTAINER_START_REFUSED, THIS_NODE),
        (EventReason.CONTAINER_START_REFUSED, OWNER),
    ]


def test_a_gpu_that_is_unhealthy_is_told_of_the_node_and_that_it_is_healthy_again(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    node.service.set_unhealthy({GPU.uuid: "XID 79"})
    node.service.set_unhealthy({})

    unhealthy = "GPU GPU-0 is unhealthy, so its units are withdrawn: XID 79"
    healthy = "GPU GPU-0 is healthy again, and its units are offered"
    assert notices(caplog) == [
        Notice(EventReason.GPU_UNHEALTHY, unhealthy, THIS_NODE),
        Notice(EventReason.GPU_HEALTHY, healthy, THIS_NODE),
    ]


def test_a_gpu_that_drains_is_told_of_the_node_and_what_it_becomes(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    config = node.config("mps")
    node.service.follow_config(config, lay_out(config, (GPU,)))
    other = node.config("vgpu")
    node.service.follow_config(other, lay_out(other, (GPU,)))

    strict = "vgpu strict by units of 1 GiB"
    text = f"GPU GPU-0 is {strict} until 1 slices have ended, then mps by units of 1 GiB"
    assert notices(caplog) == [
        Notice(EventReason.GPU_DRAINING, text, THIS_NODE),
        Notice(EventReason.GPU_SHARING_CHANGED, f"GPU GPU-0 is {strict}", THIS_NODE),
    ]
