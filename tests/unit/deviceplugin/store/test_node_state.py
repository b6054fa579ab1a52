"""What the agent's threads share: who is woken when, and what has just come back."""

from collections.abc import Set
from pathlib import Path

import pytest

from deviceplugin.store import node_state
from deviceplugin.store.checkpoint import Checkpoint
from deviceplugin.store.node_state import NodeState


class GivenState(NodeState):
    """What is held back is given by the test."""

    held_back: tuple[Set[str], Set[str]] = frozenset(), frozenset()

    def not_offered(self) -> tuple[Set[str], Set[str]]:
        return self.held_back


@pytest.fixture
def state(tmp_path: Path) -> GivenState:
    return GivenState(Checkpoint(tmp_path))


def announce(state: GivenState, *units: str, gpus: frozenset[str] = frozenset()) -> int:
    state.held_back = set(units), gpus
    with state.lock:
        state.announce()
    return state.revision


def test_only_a_change_of_what_is_held_back_is_a_new_revision(state: GivenState) -> None:
    first = announce(state, "a")
    assert announce(state, "a") == first

    assert announce(state, "a", "b") == first + 1
    assert announce(state, "a", "b", gpus=frozenset({"GPU-0"})) == first + 2
    assert announce(state, "a") == first + 3


def test_what_is_offered_again_is_told_for_a_while(tmp_path: Path) -> None:
    now = 100.0
    state = GivenState(Checkpoint(tmp_path), clock=lambda: now)
    announce(state, "a", "b", "c")
    assert state.returned() == set()

    announce(state, "c")
    assert state.returned() == {"a", "b"}
    announce(state, "b", "c")
    assert state.returned() == {"a"}
    now += 1.0
    assert state.returned() == set()


def test_who_must_know_waits_until_the_kubelet_does(
    state: GivenState, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_state, "_RETURNED_S", 0.05)
    announce(state, "a")
    announce(state)

    with state.lock:
        assert state.returned() == {"a"}
        state.wait_until_known()
        assert state.returned() == set()
