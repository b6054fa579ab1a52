"""When the thread that publishes is told that the node has changed, and when not."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from deviceplugin.kube.inventory_lease import InventoryFeed
from deviceplugin.model.allocations import Owner
from deviceplugin.model.held_devices import HeldDevice
from deviceplugin.policy.published.inventory import NodeMoment
from deviceplugin.store.checkpoint import Checkpoint
from deviceplugin.store.node_state import NodeState
from support.node.units import holding, layout_of

LAYOUT = layout_of(16)
PAIR = holding("p", range(1), range(1))
HELD = {("r", "d"): HeldDevice("r", "d", Owner("team", "pod", "main"))}


class Node:
    """A state, its feed, and what that told."""

    def __init__(self, folder: Path) -> None:
        self.state = NodeState(Checkpoint(folder), LAYOUT)
        self.told: list[NodeMoment] = []
        self.now_s = 100.0
        self.feed = InventoryFeed(self.state, self.told.append, lambda: self.now_s)
        self.feed.look()

    def change(self, change: Callable[[NodeState], object]) -> int:
        """Returns how often it told after a change."""
        before = len(self.told)
        with self.state.lock:
            change(self.state)
        for _ in range(3):
            self.feed.look()
        return len(self.told) - before


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_what_the_node_is_like_is_told_at_the_start(node: Node) -> None:
    assert [each.layout for each in node.told] == [LAYOUT]


def test_each_change_is_told_once(node: Node) -> None:
    named = replace(PAIR, owner=Owner("team", "pod", "main"))

    assert node.change(lambda state: state.commit([PAIR])) == 1
    assert node.change(lambda state: state.commit([named])) == 1
    assert node.told[-1].holdings.allocations == (named,)
    assert node.change(lambda state: state.commit(drop=["p"])) == 1
    assert not node.told[-1].holdings.allocations
    assert node.change(lambda state: state.hold(HELD)) == 1
    assert node.change(lambda state: setattr(state, "unhealthy", {"GPU-0": "lost"})) == 1
    assert node.told[-1].unhealthy == {"GPU-0": "lost"}
    assert node.change(lambda state: state.share(replace(LAYOUT, gpus=()))) == 1


def test_what_changes_nothing_is_not_told(node: Node) -> None:
    node.change(lambda state: state.commit([PAIR]))
    node.change(lambda state: state.hold(HELD))

    assert node.change(lambda state: state.book.put(replace(PAIR, missing_since=5.0))) == 0
    assert node.change(lambda state: state.hold(dict(HELD))) == 0
    assert node.change(lambda state: setattr(state, "unhealthy", {})) == 0
    assert node.change(lambda state: state.announce()) == 0


def test_a_half_is_told_again_once_it_is_all_there_is(node: Node) -> None:
    half = replace(PAIR, memory=(), changed_s=100.0)
    assert node.change(lambda state: state.commit([half])) == 1
    assert node.told[-1].holdings.halves == {"p"}

    node.now_s = 104.9
    assert node.change(lambda state: None) == 0
    node.now_s = 105.0
    assert node.change(lambda state: None) == 1
    assert not node.told[-1].holdings.halves
    node.now_s = 1000.0
    assert node.change(lambda state: None) == 0


def test_the_other_half_is_told_at_once(node: Node) -> None:
    node.change(lambda state: state.commit([replace(PAIR, memory=(), changed_s=100.0)]))

    assert node.change(lambda state: state.commit([replace(PAIR, settled=True)])) == 1
    assert not node.told[-1].holdings.halves


def test_an_owner_of_a_device_that_becomes_known_is_told(node: Node) -> None:
    node.change(lambda state: state.hold({("r", "d"): HeldDevice("r", "d")}))

    assert node.change(lambda state: state.hold(HELD)) == 1
