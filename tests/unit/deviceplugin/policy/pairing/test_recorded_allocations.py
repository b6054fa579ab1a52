"""What the kubelet's checkpoint alone says about which allocations have ended."""

from collections.abc import Collection
from dataclasses import replace

import pytest

from deviceplugin.model.allocations import Allocation, AllocationBook, Owner
from deviceplugin.policy.pairing.podresources_listing import (
    ENDED_AFTER_S,
    NEVER_SEEN_AFTER_S,
    ListingFindings,
)
from deviceplugin.policy.pairing.recorded_allocations import NEVER_RECORDED_AFTER_S, examine
from libvgpu.limits import Family

NOW = 1000.0
UNITS = ("GPU-0::c0", "GPU-0::m0")
BORN = Allocation(
    "id", Family.VGPU, "GPU-0", 1 << 30, core=UNITS[:1], memory=UNITS[1:], settled=True
)
STARTED = replace(BORN, started=True)


def look(
    *allocations: Allocation,
    recorded: Collection[str] = (),
    now: float = NOW,
    running: bool = False,
    offered: frozenset[str] = frozenset(),
) -> ListingFindings:
    return examine(AllocationBook.of(allocations), recorded, now, lambda _: running, offered)


def test_what_the_kubelet_has_on_record_stays_whatever_it_offers() -> None:
    missed = replace(STARTED, missing_since=NOW - 100)

    found = look(missed, recorded={"id"}, offered=frozenset(UNITS))

    assert found == ListingFindings((STARTED,), (), ())


@pytest.mark.parametrize(
    ("allocation", "offered", "patience_s"),
    [
        (STARTED, frozenset(), ENDED_AFTER_S),
        (replace(BORN, owner=Owner("a", "b", "c")), frozenset(), ENDED_AFTER_S),
        (BORN, frozenset(), NEVER_RECORDED_AFTER_S),
        (BORN, frozenset(UNITS[:1]), NEVER_SEEN_AFTER_S),
    ],
)
def test_what_is_on_record_for_nobody_ends_after_a_while(
    allocation: Allocation, offered: frozenset[str], patience_s: float
) -> None:
    (missed,) = look(allocation, offered=offered).changed
    assert missed.missing_since == NOW

    assert not look(missed, now=NOW + patience_s - 0.1, offered=offered).ended
    assert look(missed, now=NOW + patience_s, offered=offered).ended == (missed,)
    assert not look(missed, now=NOW + patience_s, offered=offered, running=True).ended


def test_an_offer_of_what_ran_and_is_on_record_for_nobody_is_enough() -> None:
    assert look(STARTED, offered=frozenset(UNITS[1:])).ended == (STARTED,)
    assert not look(STARTED, offered=frozenset(UNITS[1:]), running=True).ended


def test_an_init_container_lives_as_long_as_those_that_have_its_units() -> None:
    init = replace(STARTED, missing_since=NOW)
    app = replace(STARTED, allocation_id="app")
    later = NOW + ENDED_AFTER_S

    assert not look(init, app, recorded={"app"}, now=later).ended
    both = look(init, replace(app, missing_since=NOW), now=later)
    assert {each.allocation_id for each in both.ended} == {"id", "app"}
