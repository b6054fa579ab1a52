"""Random histories of a kubelet with the whole agent, and faults they notice.

Each is the life of one seed in a world that the seed alone decides (`support/world`). gRPC itself
is tested by `kubelet/test_plugin_server.py`, kills of a real process by `test_kills.py`.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from deviceplugin.core import enforcement, startup
from deviceplugin.inventory.health import Verdicts
from deviceplugin.kubelet.listening import Listening
from deviceplugin.model.allocations import Allocation, AllocationBook
from deviceplugin.model.units import Half
from deviceplugin.policy import offer, pairing, podresources_listing
from deviceplugin.policy.asked_limits import asked_on
from deviceplugin.policy.layout import Layout
from deviceplugin.policy.learnt_sizes import LearntSizes
from deviceplugin.policy.offer import unit_names
from deviceplugin.recovery.rebuild import Rebuilt
from deviceplugin.store import node_state, slice_files
from deviceplugin.store.checkpoint import Checkpoint, Loaded
from deviceplugin.store.node_state import NodeState
from libvgpu.limits import ContainerLimits
from support.world.fault_histories import UnderFaults
from support.world.kill_histories import UnderKills
from support.world.lives import (
    KINDS,
    Kind,
    edits,
    faults,
    forgets,
    kills,
    live,
    live_all,
    live_many,
    pairs,
    small_shim,
)
from support.world.node import WorldNode
from support.world.sharing_histories import SharingHistory

MOST_SEEDS = 60  # a fault is to be noticed within these
#: What becomes of an allocation that the agent does not know any more.
FORGOTTEN = "(is given to|has no record|was refused with|every allocation is freed)"


@pytest.fixture(autouse=True)
def shim(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with small_shim(monkeypatch):
        yield


@pytest.mark.timeout(3000)
@pytest.mark.parametrize("kind", KINDS)
def test_no_life_breaks_a_promise(kind: Kind, request: pytest.FixtureRequest) -> None:
    lived = live_all(kind, request.node.nodeid)

    for each in lived:
        if isinstance(each, UnderKills):
            assert each.kills == each.life.steps // 2
    if lived and kind is kills:
        assert sum(each.in_midst for each in lived if isinstance(each, UnderKills)) > 100
    if lived and kind is faults:
        assert sum(each.faults for each in lived if isinstance(each, UnderFaults)) > 2 * len(lived)
    if lived:  # else one life is repeated
        steps = sum(each.life.steps for each in lived)
        assert sum(each.admitted for each in lived) > steps / (10 if kind is faults else 5)
        assert sum(each.started for each in lived) > steps / 20
        shared = [each for each in lived if isinstance(each, SharingHistory)]
        assert all(each.edits for each in shared) or sum(len(each.drained) for each in shared) > 10


@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_says_all_that_happens(kind: Kind) -> None:
    nodes = [live(kind, seed).node for seed in (5, 5, 6)]

    first, again, other = (
        each.turns.trace.digest() + each.answers.digest()
        for each in nodes
        if isinstance(each, WorldNode)
    )
    assert first == again != other


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


def takes_edits_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(node_state, "in_force", lambda wanted, gpus, book, held: wanted)


def withdraws_held_units(patch: pytest.MonkeyPatch) -> None:
    def everything(layout: Layout, book: AllocationBook, *more: Any) -> set[str]:
        drains = [shared for shared in layout.gpus if shared.drains]
        return {unit for shared in drains for half in Half for unit in unit_names(shared, half)}

    patch.setattr(offer, "withdrawn", everything)


def saves_after_the_answer(patch: pytest.MonkeyPatch) -> None:
    """What is given is on the disk only once the agent tidies up, and the files say nothing."""
    record, waiting = Checkpoint.record, list[tuple[list[Allocation], list[str]]]()

    def later(self: Checkpoint, put: Any = (), drop: Any = ()) -> None:
        waiting.append((list(put), list(drop)))

    def now(self: Checkpoint) -> None:
        while waiting:
            record(self, *waiting.pop(0))

    def load(self: Checkpoint) -> Loaded:
        waiting.clear()  # the agent of before had it in its memory
        return loads(self)

    loads = Checkpoint.load
    patch.setattr(Checkpoint, "record", later)
    patch.setattr(Checkpoint, "compact", now)
    patch.setattr(Checkpoint, "load", load)


def keeps_gpus_ill(patch: pytest.MonkeyPatch) -> None:
    note = Verdicts.note_answer

    def only_bad(self: Verdicts, uuid: str, problem: str) -> None:
        if problem:
            note(self, uuid, problem)

    patch.setattr(Verdicts, "note_answer", only_bad)


def registers_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Listening, "is_due", lambda *_: False)


def enters_before_it_saves(patch: pytest.MonkeyPatch) -> None:
    def commit(self: NodeState, put: Iterable[Allocation] = (), drop: Iterable[str] = ()) -> None:
        changed, gone = list(put), list(drop)
        for each in gone:
            self.book.drop(each)
        for allocation in changed:
            self.book.put(allocation)
        self._checkpoint.record(changed, gone)

    patch.setattr(NodeState, "commit", commit)


@pytest.mark.parametrize(
    ("kind", "plant", "said"),
    [
        (pairs, splits_pairs, "is split"),
        (forgets, gives_held_units, "is (given to|split)"),
        (pairs, leaks, "(was refused with|every allocation is freed)"),
        (pairs, forgets_over_a_restart, FORGOTTEN),
        (kills, forgets_over_a_restart, FORGOTTEN),
        (kills, saves_after_the_answer, FORGOTTEN),
        (pairs, writes_wrong_limits, "has 100 core"),
        (pairs, shares_files, "share the files"),
        (edits, takes_edits_at_once, "(are not healthy|slices|given to)"),
        (edits, withdraws_held_units, "are not healthy"),
        (faults, keeps_gpus_ill, "is offered"),
        (faults, registers_once, "is (offered|registered)"),
        (faults, enters_before_it_saves, "every allocation is freed"),
    ],
)
def test_a_planted_fault_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
    kind: Kind,
    plant: Callable[[pytest.MonkeyPatch], None],
    said: str,
) -> None:
    plant(monkeypatch)

    with pytest.raises(AssertionError, match=f"seed [0-9]+, history 0: .*{said}"):
        live_many(kind, range(MOST_SEEDS))
