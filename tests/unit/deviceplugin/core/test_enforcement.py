"""That limits are resolved once, kept, and resolved again only when an input has changed."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from deviceplugin.core import enforcement
from deviceplugin.model.agent_config import AgentConfig
from deviceplugin.model.allocations import Allocation, Owner
from deviceplugin.model.overrides import Override
from deviceplugin.model.units import Half
from deviceplugin.policy.limits.resolver import ResolvedLimits, resolve
from deviceplugin.policy.pairing.podresources_listing import Listed
from deviceplugin.store.slice_files import SliceStore
from libvgpu.errors import AllocationRefused, RegionBusyError
from libvgpu.limits import ContainerLimits, Family
from support.node.core import GIB, AgentCore, fractional, some_gpus

OWNER = Owner("team-a", "pod", "main")
ALLOWING = "limits:\n- {allowRaise: true, core: 60}\n"


class Node(AgentCore):
    """With one known container of 40 % and 8 GiB, counting what is resolved."""

    def __init__(self, folder: Path, family: Family, monkeypatch: pytest.MonkeyPatch) -> None:
        self.family, self.resolutions = family, 0

        def counted(*args: Any) -> ResolvedLimits:
            self.resolutions += 1
            return resolve(*args)

        monkeypatch.setattr(enforcement, "resolve", counted)
        self.labels: Mapping[str, str] | None = None
        labels = {"labels": lambda allocation_id: self.labels}
        super().__init__(folder, self.config(""), some_gpus(1), **labels)
        units = self.give(family, 40, 8)
        self.listed = [Listed(OWNER, frozenset(units[Half.CORE] + units[Half.MEMORY]))]
        self.service.starts.pre_start(family, Half.CORE, units[Half.CORE])
        self.resolutions = 0

    def config(self, rules: str) -> AgentConfig:
        return fractional(f"family: {self.family.name.lower()}, memoryUnit: 1Gi", rules)

    def allow(self, rules: str) -> None:
        self.follow(self.config(rules))
        self.resolutions = 0

    def set(self, override: Override) -> None:
        self.service.enforcement.set_override(self.allocation_id, override)

    def origins(self) -> list[str]:
        ((_, resolved),) = self.service.resolved()
        (origins,) = resolved.origins
        return [str(origin) for origin in (origins.core, origins.memory, origins.compute)]

    def in_file(self) -> tuple[int, int]:
        return self.device.core_percent, self.device.memory_limit_bytes


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
    node.allow(ALLOWING)
    assert node.in_file() == (60, 8 * GIB)

    node.set(Override(memory_bytes=9 * GIB))

    assert node.resolutions == 1
    assert node.in_file() == (60, 9 * GIB)
    assert node.origins() == ["limits[0] on line 4", "vgpuctl set", "sharing"]
    ((allocation, resolved),) = node.service.resolved()
    assert len(allocation.raised) == resolved.raised.core + resolved.raised.memory == 21


def test_a_set_that_is_refused_leaves_everything_as_it_was(node: Node) -> None:
    node.allow(ALLOWING)
    before = node.service.resolved()

    with pytest.raises(AllocationRefused, match="at most 16 GiB is allowed"):
        node.set(Override(memory_bytes=17 * GIB))

    assert node.resolutions == 1
    assert node.service.resolved() == before
    assert node.in_file() == (60, 8 * GIB)


def test_nothing_is_resolved_again_while_no_input_changes(node: Node) -> None:
    node.set(Override(core_percent=30))
    node.resolutions = 0

    node.service.watched()
    node.service.allocations()
    node.service.reconcile()
    node.service.follow_labels()
    node.follow(node.config(""))
    assert node.resolutions == 0

    node.service.set_unaccounted({node.allocation_id: {"GPU-0": GIB}})
    assert node.resolutions == 1
    node.labels = {"tier": "batch"}
    node.service.follow_labels()
    assert node.resolutions == 2
    node.follow(node.config(ALLOWING))
    assert node.resolutions == 3
    node.service.enforcement.set_override(node.allocation_id, None)
    assert node.resolutions == 4
    assert node.origins()[0] == "limits[0] on line 4"


def test_limits_are_written_under_the_agents_lock(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, put = node.service.state, SliceStore.put
    busy, held = [True], []

    def watched(
        store: SliceStore, allocation: Allocation, limits: ContainerLimits
    ) -> ContainerLimits | None:
        held.append(state.lock.locked())
        if busy.pop():
            raise RegionBusyError("its container has a lease")
        return put(store, allocation, limits)

    monkeypatch.setattr(SliceStore, "put", watched)
    node.set(Override(core_percent=30))
    busy.append(False)
    node.service.enforcement.write_late()

    assert held == [True, True]
    assert not state.lock.locked()
    assert node.in_file() == (30, 8 * GIB)
