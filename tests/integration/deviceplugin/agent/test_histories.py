"""Thousands of random histories of a kubelet with the running agent, and faults they notice."""

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deviceplugin.core import enforcement, startup
from deviceplugin.core.admission import Admission
from deviceplugin.kubelet.podresources import PodResources
from deviceplugin.model.allocations import Allocation, AllocationBook
from deviceplugin.policy import pairing, podresources_listing
from deviceplugin.policy.asked_limits import asked_on
from deviceplugin.policy.layout import Layout
from deviceplugin.policy.learnt_sizes import LearntSizes
from deviceplugin.recovery.rebuild import Rebuilt
from deviceplugin.store import slice_files
from deviceplugin.store.checkpoint import Checkpoint, Loaded
from deviceplugin.store.slice_files import Answer
from deviceplugin.testing import StandInKubelet
from libvgpu.limits import ContainerLimits
from support import IS_LONG
from support.histories import History, Life
from support.in_process_node import InProcessNode, running_node

CONFIG = "version: v1\nsharing: {fractional: [{family: vgpu, memoryUnit: 1Gi}]}\n"
HISTORIES, STEPS = 1000 if IS_LONG else 20, 12
#: Without halves whose container nobody can know; then a pair that fits is never refused.
PAIRS = Life(STEPS, HISTORIES, {"pair": 40, "several": 8, "init": 10, "too much": 5, "end": 35,
                                "start": 25, "restart agent": 1, "restart kubelet": 1})  # fmt: skip


class RealisticNode(InProcessNode):
    """Its kubelet keeps directories of pods."""

    forgets = False

    def __init__(self, base: Path) -> None:
        super().__init__(base)
        self.kubelet = StandInKubelet(
            self.kubelet_dir, 1, forgets_in_flight=self.forgets, makes_pod_directories=True
        )


class RealisticForgetfulNode(RealisticNode):
    """It loses the units of a call when somebody lists meanwhile, too (kubernetes#137534)."""

    forgets = True


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Iterator[InProcessNode]:
    with running_node(monkeypatch, RealisticNode, CONFIG) as node:
        yield node


@pytest.mark.timeout(1500)
@pytest.mark.parametrize("life", [PAIRS, Life(STEPS, HISTORIES)], ids=["pairs", "everything"])
def test_no_history_breaks_a_promise(node: InProcessNode, life: Life) -> None:
    History(node, 0, life).run()


def somebody_lists_within_each_call(patch: pytest.MonkeyPatch, history: History) -> None:
    """A pod ends, and a monitoring agent lists podresources, in the midst of an `Allocate`."""
    allocate = Admission._allocate
    resources = PodResources(history.node.kubelet_dir, "nvidia.com")

    def within(*given: Any) -> Answer:
        if history.ending is not None:
            history.end_now()
            resources.list()
        return allocate(*given)

    patch.setattr(Admission, "_allocate", within)


@pytest.mark.timeout(750)
def test_a_kubelet_that_forgets_makes_nobody_share(monkeypatch: pytest.MonkeyPatch) -> None:
    with running_node(monkeypatch, RealisticForgetfulNode, CONFIG) as node:
        weights = {"pair": 50, "several": 8, "end": 10, "start": 25}
        history = History(node, 4, Life(STEPS * HISTORIES // 2, weights=weights))
        somebody_lists_within_each_call(monkeypatch, history)
        history.ends_meanwhile = True
        history.may_be_refused = True  # it offers units that are held, and asks nobody else
        history.run()


def splits_pairs(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(pairing, "open_allocation", lambda *_: None)


def gives_held_units(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(AllocationBook, "free", lambda self, units: set(units))
    patch.setattr(pairing, "_check_given", lambda *_: None)


def leaks(patch: pytest.MonkeyPatch) -> None:
    nothing = podresources_listing.ListingFindings((), (), ())
    examine = podresources_listing.examine

    def never_ends(*given: Any) -> podresources_listing.ListingFindings:
        return replace(examine(*given), ended=nothing.ended)

    patch.setattr(podresources_listing, "examine", never_ends)


def forgets_over_a_restart(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Checkpoint, "load", lambda self: Loaded((), trusted=True))
    patch.setattr(startup, "rebuild", lambda *_: Rebuilt((), (), frozenset()))


def writes_wrong_limits(patch: pytest.MonkeyPatch) -> None:
    def too_much(layout: Layout, allocation: Allocation, costs: LearntSizes) -> ContainerLimits:
        asked = asked_on(layout, allocation)
        (device, *rest) = asked.devices
        return replace(asked, devices=(replace(device, core_percent=100), *rest))

    patch.setattr(enforcement, "asked_on", too_much)


def shares_files(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        slice_files.SliceStore, "directory", lambda self, _: self.run_dir / "allocations/one"
    )


@pytest.mark.parametrize(
    ("plant", "said"),
    [
        (splits_pairs, "is split"),
        (gives_held_units, "is (given to|split)"),
        (leaks, "was refused with"),
        (forgets_over_a_restart, "(is given to|has no record)"),
        (writes_wrong_limits, "has 100 core"),
        (shares_files, "share the files"),
    ],
)
def test_a_planted_fault_is_noticed(
    monkeypatch: pytest.MonkeyPatch, plant: Callable[[pytest.MonkeyPatch], None], said: str
) -> None:
    plant(monkeypatch)
    often = Life(400, sys.maxsize, {**PAIRS.weights, "restart agent": 4})  # until it is noticed

    with running_node(monkeypatch, RealisticForgetfulNode, CONFIG) as node:
        history = History(node, 5, often)
        somebody_lists_within_each_call(monkeypatch, history)
        history.ends_meanwhile = history.may_be_refused = plant is gives_held_units
        with pytest.raises(AssertionError, match=f"seed 5, history .*{said}"):
            history.run()
