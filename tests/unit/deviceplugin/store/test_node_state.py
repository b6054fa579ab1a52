"""What the agent's threads share: who is woken when, and what has just come back."""

from pathlib import Path

import pytest

from deviceplugin.policy.devices import offer
from deviceplugin.store import node_state
from deviceplugin.store.checkpoint import Checkpoint
from deviceplugin.store.node_state import NodeState


@pytest.fixture
def withdrawn(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The units that are held back."""
    units: set[str] = set()
    monkeypatch.setattr(offer, "withdrawn", lambda layout, book: frozenset(units))
    return units


@pytest.fixture
def state(tmp_path: Path) -> NodeState:
    return NodeState(Checkpoint(tmp_path))


def announce(state: NodeState, withdrawn: set[str], *units: str, gpu: str = "") -> int:
    withdrawn.clear()
    withdrawn.update(units)
    state.unhealthy = {gpu: "lost"} if gpu else {}
    with state.lock:
        state.announce()
    return state.revision


def test_only_a_change_of_what_is_held_back_is_a_new_revision(
    state: NodeState, withdrawn: set[str]
) -> None:
    first = announce(state, withdrawn, "a")
    assert announce(state, withdrawn, "a") == first

    assert announce(state, withdrawn, "a", "b") == first + 1
    assert announce(state, withdrawn, "a", "b", gpu="GPU-0") == first + 2
    assert announce(state, withdrawn, "a") == first + 3


def test_what_is_offered_again_is_told_for_a_while(tmp_path: Path, withdrawn: set[str]) -> None:
    now = 100.0
    state = NodeState(Checkpoint(tmp_path), clock=lambda: now)
    announce(state, withdrawn, "a", "b", "c")
    assert state.returned() == set()

    announce(state, withdrawn, "c")
    assert state.returned() == {"a", "b"}
    announce(state, withdrawn, "b", "c")
    assert state.returned() == {"a"}
    now += 1.0
    assert state.returned() == set()


def test_who_must_know_waits_until_the_kubelet_does(
    state: NodeState, withdrawn: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_state, "_RETURNED_S", 0.05)
    announce(state, withdrawn, "a")
    announce(state, withdrawn)

    with state.lock:
        assert state.returned() == {"a"}
        state.wait_until_known()
        assert state.returned() == set()
