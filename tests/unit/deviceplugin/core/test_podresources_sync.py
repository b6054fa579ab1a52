"""When podresources is asked, and when it must not be: an `Allocate` is on its way, or here."""

import threading
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

import pytest

from deviceplugin.core import podresources_sync
from deviceplugin.core.parts import Allocations, Sources
from deviceplugin.core.podresources_sync import PodResourcesSync
from deviceplugin.policy.pairing.podresources_listing import Listed
from deviceplugin.store.checkpoint import Checkpoint
from deviceplugin.store.node_state import NodeState
from support.waiting import PATIENCE_S


class CountingKubelet:
    """Counts its listings; one may be made to take as long as a test likes."""

    def __init__(self) -> None:
        self.listings = 0
        self.began, self.may_end = threading.Event(), threading.Event()
        self.may_end.set()

    def list(self) -> Sequence[Listed]:
        self.listings += 1
        self.began.set()
        assert self.may_end.wait(PATIENCE_S)
        return ()


@pytest.fixture
def kubelet() -> CountingKubelet:
    return CountingKubelet()


class Clock:
    """Time that passes where somebody sleeps."""

    now_s = 0.0

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


@pytest.fixture
def looks(kubelet: CountingKubelet, tmp_path: Path) -> PodResourcesSync:
    clock = Clock()
    return PodResourcesSync(
        Allocations(NodeState(Checkpoint(tmp_path)), mock.Mock(), mock.Mock()),
        Sources(kubelet.list, clock=lambda: clock.now_s, sleep=clock.sleep),
    )


def test_nobody_lists_between_a_preference_and_its_allocate(
    looks: PodResourcesSync, kubelet: CountingKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(podresources_sync, "_EXPECTED_S", PATIENCE_S)
    looks.expect_allocate()

    assert looks.look() is None
    with looks.held_off():
        assert looks.look() is None
        assert looks.look(is_asked=True) is None
    assert looks.look() is None, "the kubelet may not have it on record yet"
    assert kubelet.listings == 0

    assert looks.look(is_asked=True) == ()  # it has gone on to another
    assert kubelet.listings == 1


def test_the_latest_container_starts_without_waiting(
    looks: PodResourcesSync, kubelet: CountingKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(podresources_sync, "_EXPECTED_S", PATIENCE_S)
    monkeypatch.setattr(podresources_sync, "PATIENCE_S", 0.1)
    for units in (["GPU-0::c0"], ["GPU-0::m0"]):
        with looks.held_off(units):
            pass

    assert looks.look_patiently(["GPU-1::c0"]) is None
    assert looks.look_patiently(["GPU-0::c0"]) == ()
    assert kubelet.listings == 1


def test_an_allocate_that_never_comes_holds_nobody_up(
    looks: PodResourcesSync, kubelet: CountingKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks.expect_allocate()
    assert looks.look(is_asked=True) == (), "the kubelet asks for another: it has given up"

    monkeypatch.setattr(podresources_sync, "_EXPECTED_S", 0.02)
    looks.expect_allocate()
    assert looks.look_patiently(["GPU-0::c0"]) == ()


def test_a_preference_waits_for_a_listing_under_way(
    looks: PodResourcesSync, kubelet: CountingKubelet
) -> None:
    kubelet.may_end.clear()
    listing = threading.Thread(target=looks.look)
    listing.start()
    assert kubelet.began.wait(PATIENCE_S)
    answered = threading.Event()

    def allocate() -> None:
        looks.expect_allocate()
        answered.set()

    answer = threading.Thread(target=allocate)
    answer.start()

    assert not answered.wait(0.1)
    kubelet.may_end.set()

    assert answered.wait(PATIENCE_S)
    for thread in (listing, answer):
        thread.join(PATIENCE_S)


def test_what_an_allocate_overtook_is_thrown_away(
    looks: PodResourcesSync, kubelet: CountingKubelet
) -> None:
    kubelet.may_end.clear()
    found: list[Sequence[Listed] | None] = []
    listing = threading.Thread(target=lambda: found.append(looks.look()))
    listing.start()
    assert kubelet.began.wait(PATIENCE_S)

    with looks.held_off():
        kubelet.may_end.set()
        listing.join(PATIENCE_S)

    assert found == [None]
