"""Random histories in which the sharing changes under load, and faults that they notice."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from deviceplugin import agent
from deviceplugin.model.allocations import AllocationBook
from deviceplugin.model.units import Half
from deviceplugin.policy import offer, pairing
from deviceplugin.policy.layout import Layout
from deviceplugin.policy.offer import unit_names
from deviceplugin.store import node_state
from deviceplugin.testing import StandInKubelet
from support import IS_LONG, sharing_histories
from support.histories import Life
from support.in_process_node import InProcessNode, running_node
from support.sharing_histories import GPUS, SharingHistory, WantedSharing

CONFIG = WantedSharing(("vgpu", "vgpu", "vgpu"), {"vgpu": 1, "mps": 1}).text()
HISTORIES, STEPS = 300 if IS_LONG else 6, 40
WEIGHTS = {"pair": 40, "end": 35, "start": 15, "edit": 8, "restart agent": 1, "restart kubelet": 1}


class SharingNode(InProcessNode):
    """Its kubelet keeps directories of pods, and any GPU may come to have an MPS daemon."""

    def __init__(self, base: Path) -> None:
        super().__init__(base)
        self.kubelet = StandInKubelet(self.kubelet_dir, 1, makes_pod_directories=True)
        for gpu in GPUS[1:]:
            (self.run_dir / "mps" / gpu.uuid / "pipe").mkdir(parents=True)


@pytest.fixture(autouse=True)
def goes_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    """A life is minutes of a node in seconds, and so is what the agent does now and then.

    The stand-in kubelet dials a plugin that registers for 10 s; one that an edit took away again
    meanwhile keeps an admission waiting for that long between its halves.
    """
    monkeypatch.setattr(pairing, "JOIN_WINDOW_S", 30.0)
    monkeypatch.setattr(agent, "_CONFIG_EVERY_S", 0.03)
    monkeypatch.setattr(agent, "_KUBELET_EVERY_S", 0.1)


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch, goes_faster: None) -> Iterator[InProcessNode]:
    with running_node(monkeypatch, SharingNode, CONFIG) as node:
        yield node


@pytest.mark.timeout(1500)
def test_no_history_with_edits_breaks_a_promise(node: InProcessNode) -> None:
    SharingHistory(node, 0, Life(STEPS, HISTORIES, WEIGHTS)).run()


def takes_edits_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(node_state, "in_force", lambda wanted, gpus, book, held: wanted)


def withdraws_held_units(patch: pytest.MonkeyPatch) -> None:
    def everything(layout: Layout, book: AllocationBook, *more: Any) -> set[str]:
        drains = [shared for shared in layout.gpus if shared.drains]
        return {unit for shared in drains for half in Half for unit in unit_names(shared, half)}

    patch.setattr(offer, "withdrawn", everything)


@pytest.mark.parametrize(
    ("plant", "said"),
    [
        (takes_edits_at_once, "(are not healthy|slices|given to)"),
        (withdraws_held_units, "are not healthy"),
    ],
)
def test_a_planted_fault_is_noticed(
    monkeypatch: pytest.MonkeyPatch, plant: Callable[[pytest.MonkeyPatch], None], said: str
) -> None:
    plant(monkeypatch)
    monkeypatch.setattr(sharing_histories, "PATIENCE_S", 1.0)

    with running_node(monkeypatch, SharingNode, CONFIG) as node:
        history = SharingHistory(node, 3, Life(STEPS, sys.maxsize, WEIGHTS))  # until it is noticed
        with pytest.raises(AssertionError, match=f"seed 3, history .*{said}"):
            history.run()
