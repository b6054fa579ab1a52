"""That limits are resolved once, kept, and resolved again only when an input has changed."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from deviceplugin.config.loading import parse_config
from deviceplugin.core import enforcement
from deviceplugin.core.parts import Sources
from deviceplugin.core.service import SliceService
from deviceplugin.model.agent_config import AgentConfig
from deviceplugin.model.allocations import Owner
from deviceplugin.model.gpus import Gpu
from deviceplugin.model.overrides import Override
from deviceplugin.model.units import Half, unit_name
from deviceplugin.policy.devices.layout import lay_out
from deviceplugin.policy.limits.resolver import ResolvedLimits, resolve
from deviceplugin.policy.pairing.podresources_listing import Listed
from deviceplugin.store.checkpoint import Checkpoint
from deviceplugin.store.node_state import NodeState
from deviceplugin.store.slice_files import SliceStore
from libvgpu import region
from libvgpu.errors import AllocationRefused
from libvgpu.limits import Family

GIB = 1 << 30
GPU = Gpu(0, "GPU-0", "test", 16 * GIB)
OWNER = Owner("team-a", "pod", "main")
ALLOWING = "limits:\n- {allowRaise: true, core: 60}\n"


class Node:
    """An agent's core with one known container of 40 % and 8 GiB, counting what is resolved."""

    def __init__(self, folder: Path, family: Family, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.family, self.resolutions = folder, family, 0

        def counted(*args: Any) -> ResolvedLimits:
            self.resolutions += 1
            return resolve(*args)

        monkeypatch.setattr(enforcement, "resolve", counted)
        (folder / "state").mkdir()
        store = SliceStore(folder / "run", folder / "state")
        store.prepare()
        self.labels: Mapping[str, str] | None = None
        units = {h: [unit_name(GPU.uuid, h, n) for n in range(40)] for h in Half}
        units[Half.MEMORY] = units[Half.MEMORY][:8]
        listed = [Listed(OWNER, frozenset(units[Half.CORE] + units[Half.MEMORY]))]
        config = self.config("")
        self.service = SliceService(
            NodeState(Checkpoint(folder / "state"), lay_out(config, (GPU,))),
            store,
            config.rules,
            Sources(lambda: listed, labels=lambda allocation_id: self.labels),
        )
        for half, names in units.items():
            self.service.admission.allocate(family, half, names)
        self.service.starts.pre_start(family, Half.CORE, units[Half.CORE])
        ((allocation, _),) = self.service.allocations()
        self.allocation_id = allocation.allocation_id
        self.resolutions = 0

    def config(self, rules: str) -> AgentConfig:
        family = self.family.name.lower()
        text = f"version: v1\nsharing: {{fractional: [{{family: {family}, memoryUnit: 1Gi}}]}}\n"
        return parse_config(text + rules)

    def follow(self, rules: str) -> None:
        self.service.follow_config(self.config(rules), self.service.layout)
        self.resolutions = 0

    def set(self, override: Override) -> None:
        self.service.set_override(self.allocation_id, override)

    def origins(self) -> list[str]:
        ((_, resolved),) = self.service.resolved()
        (origins,) = resolved.origins
        return [str(origin) for origin in (origins.core, origins.memory, origins.compute)]

    def in_file(self) -> tuple[int, int]:
        directory = self.folder / "run" / "allocations" / self.allocation_id
        (device,) = region.read_limits(directory).limits.devices
        ((_, limits),) = self.service.allocations()
        assert limits.devices == (device,)
        return device.core_percent, device.memory_limit_bytes


@pytest.fixture(params=list(Family))
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Node:
    return Node(tmp_path, request.param, monkeypatch)


def test_a_set_resolves_once_and_says_where_each_value_comes_from(node: Node) -> None:
    node.set(Override(core_percent=30))

    assert node.resolutions == 1
    assert node.in_file() == (30, 8 * GIB)
    assert node.origins() == ["vgpuctl set", "request", "sharing"]
    assert node.resolutions == 1, "who only asks gets what is kept"


def test_a_raise_resolves_once_too(node: Node) -> None:
    node.follow(ALLOWING)
    assert node.in_file() == (60, 8 * GIB)

    node.set(Override(memory_bytes=9 * GIB))

    assert node.resolutions == 1
    assert node.in_file() == (60, 9 * GIB)
    assert node.origins() == ["limits[0] on line 4", "vgpuctl set", "sharing"]
    ((allocation, resolved),) = node.service.resolved()
    assert len(allocation.raised) == resolved.raised.core + resolved.raised.memory == 21


def test_a_set_that_is_refused_leaves_everything_as_it_was(node: Node) -> None:
    node.follow(ALLOWING)
    before = node.service.resolved()

    with pytest.raises(AllocationRefused, match="at most 16 GiB is allowed"):
        node.set(Override(memory_bytes=17 * GIB))

    assert node.resolutions == 1
    assert node.service.resolved() == before
    assert node.in_file() == (60, 8 * GIB)


def test_a_rule_that_wants_more_than_there_is_says_so(node: Node) -> None:
    node.follow("limits:\n- {allowRaise: true, memory: 20Gi}\n")

    assert node.in_file() == (40, 8 * GIB)
    assert node.origins()[1] == "limits[0] on line 4, capped by what the GPU has unallocated"


def test_nothing_is_resolved_again_while_no_input_changes(node: Node) -> None:
    node.set(Override(core_percent=30))
    node.resolutions = 0

    node.service.watched()
    node.service.allocations()
    node.service.reconcile()
    node.service.follow_labels()
    node.service.follow_config(node.config(""), node.service.layout)
    assert node.resolutions == 0

    node.service.set_unaccounted({node.allocation_id: {GPU.uuid: GIB}})
    assert node.resolutions == 1
    node.labels = {"tier": "batch"}
    node.service.follow_labels()
    assert node.resolutions == 2
    node.service.follow_config(node.config(ALLOWING), node.service.layout)
    assert node.resolutions == 3
    node.service.clear_override(node.allocation_id)
    assert node.resolutions == 4
    assert node.origins()[0] == "limits[0] on line 4"
