"""Thousands of random histories of a running agent: gRPC, threads and real time.

How the threads meet is up to the machine, so a seed does not replay a life here. In the gate the
same promises are held by the lives of `test_histories.py`, where no thread runs, and gRPC and the
agent's loop by `kubelet/test_over_grpc.py`, `recovery/test_recovery.py` and `test_restarts.py`.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from deviceplugin import agent
from deviceplugin.policy import pairing
from deviceplugin.testing import StandInKubelet
from support.histories import History, Life
from support.in_process_node import InProcessNode, running_node
from support.seeded_lives import (
    CONFIG,
    EDITS,
    FORGETS,
    GPUS,
    PAIRS,
    SHARING,
    somebody_lists_within_each_call,
)
from support.sharing_histories import SharingHistory

pytestmark = [pytest.mark.long, pytest.mark.timeout(3000)]

HISTORIES, STEPS = 1000, 12


class RealisticNode(InProcessNode):
    """Its kubelet keeps directories of pods, and any GPU may come to have an MPS daemon."""

    forgets = False

    def __init__(self, base: Path) -> None:
        super().__init__(base)
        self.kubelet = StandInKubelet(
            self.kubelet_dir, 1, forgets_in_flight=self.forgets, makes_pod_directories=True
        )
        for gpu in GPUS[1:]:
            (self.run_dir / "mps" / gpu.uuid / "pipe").mkdir(parents=True)


class ForgetfulNode(RealisticNode):
    """It loses the units of a call when somebody lists meanwhile, too (kubernetes#137534)."""

    forgets = True


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Iterator[InProcessNode]:
    with running_node(monkeypatch, RealisticNode, CONFIG) as node:
        yield node


@pytest.mark.parametrize("weights", [PAIRS, Life().weights], ids=["pairs", "everything"])
def test_no_history_breaks_a_promise(node: InProcessNode, weights: dict[str, int]) -> None:
    History(node, 0, Life(STEPS, HISTORIES, weights)).run()


def test_a_kubelet_that_forgets_makes_nobody_share(monkeypatch: pytest.MonkeyPatch) -> None:
    with running_node(monkeypatch, ForgetfulNode, CONFIG) as node:
        history = History(node, 4, Life(STEPS * HISTORIES // 2, weights=FORGETS))
        somebody_lists_within_each_call(monkeypatch, history)
        history.ends_meanwhile = True
        history.may_be_refused = True  # it offers units that are held, and asks nobody else
        history.run()


def test_no_history_with_edits_breaks_a_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    # The stand-in kubelet dials a plugin that registers for 10 s; one that an edit took away again
    # meanwhile keeps an admission waiting for that long between its halves.
    monkeypatch.setattr(pairing, "JOIN_WINDOW_S", 30.0)
    monkeypatch.setattr(agent, "_CONFIG_EVERY_S", 0.03)
    monkeypatch.setattr(agent, "_KUBELET_EVERY_S", 0.1)
    with running_node(monkeypatch, RealisticNode, SHARING) as node:
        SharingHistory(node, 0, Life(40, 300, EDITS)).run()
