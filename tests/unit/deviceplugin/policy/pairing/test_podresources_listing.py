"""What the agent concludes from a podresources listing: owners, ends, and what it must not end."""

from dataclasses import replace

import pytest

from deviceplugin.model.allocations import Allocation, AllocationBook, Owner
from deviceplugin.policy.pairing.podresources_listing import (
    ENDED_AFTER_S,
    NEVER_SEEN_AFTER_S,
    RECORDED_AFTER_S,
    Listed,
    ListingFindings,
    conflict,
    device_conflict,
    examine,
)
from libvgpu.limits import Family

NOW = 1000.0
OWNER = Owner("team", "pod", "main")
HELD = Allocation(
    "id",
    Family.VGPU,
    "GPU-0",
    1 << 30,
    core=("GPU-0::c0",),
    memory=("GPU-0::m0",),
    settled=True,
    changed_s=NOW,
)
UNITS = frozenset({"GPU-0::c0", "GPU-0::m0"})


def look(
    allocation: Allocation,
    *listing: Listed,
    now: float = NOW,
    running: bool = False,
    offered: frozenset[str] = frozenset(),
) -> ListingFindings:
    return examine(AllocationBook.of([allocation]), listing, now, lambda _: running, offered)


def test_a_listing_names_the_owner_once() -> None:
    found = look(HELD, Listed(OWNER, UNITS))

    assert [h.owner for h in found.identified] == [OWNER]
    again = look(found.identified[0], Listed(OWNER, UNITS))
    assert again == ListingFindings((), (), ())


def test_a_missing_holding_ends_after_a_while_and_not_before() -> None:
    known = replace(HELD, owner=OWNER)
    (missing,) = look(known, now=NOW).changed

    assert look(missing, now=NOW + ENDED_AFTER_S - 0.1) == ListingFindings((), (), ())
    assert look(missing, now=NOW + ENDED_AFTER_S).ended == (missing,)


def test_one_that_comes_back_is_as_before() -> None:
    missing = replace(HELD, owner=OWNER, missing_since=NOW)

    (back,) = look(missing, Listed(OWNER, UNITS), now=NOW + 60).changed

    assert back == replace(HELD, owner=OWNER)


def test_one_that_the_kubelet_has_on_record_is_not_missing_any_more() -> None:
    """A plain init container's, looked at before its pod had a directory with the kubelet."""
    missing = replace(HELD, missing_since=NOW)

    found = examine(
        AllocationBook.of([missing]),
        [],
        NOW + 60,
        lambda _: False,
        recorded=lambda allocation: True,
    )

    assert found == ListingFindings((HELD,), (), ())


def test_an_init_container_that_borrows_of_a_later_one_ends_with_it() -> None:
    app = replace(HELD, allocation_id="app", owner=OWNER, missing_since=NOW)
    init = replace(HELD, memory=(), implicit_units=HELD.memory, missing_since=NOW)
    before = replace(init, implicit_units=())
    book = AllocationBook.of([before, app])
    book.put(init)  # completed at its start, when the later one was admitted already

    found = examine(book, [], NOW + 60, lambda _: False)

    assert set(found.ended) == {app, init}


def test_a_kubelet_that_knows_no_pod_yet_ends_none_that_it_has_on_record() -> None:
    """It was restarted, and the API server is away: it lists nothing, for as long as that takes."""
    known = replace(HELD, owner=OWNER, started=True, missing_since=NOW)

    def ended(*listing: Listed, offered: frozenset[str] = frozenset()) -> tuple[Allocation, ...]:
        return examine(
            AllocationBook.of([known]),
            listing,
            NOW + 60,
            lambda _: False,
            offered,
            lambda allocation: True,
        ).ended

    assert not ended()
    assert ended(offered=UNITS) == (known,), "it has ended, and the record is an old one"
    assert ended(Listed(OWNER, frozenset())) == (known,), "the kubelet knows the pod, without it"


@pytest.mark.parametrize(
    ("listed", "owner", "is_freed"),
    [
        ("agent-x7k2p", OWNER, True),
        ("etcd-node", OWNER, False),
        ("agent-x7k2p", replace(OWNER, pod="static-node"), False),
        ("agent-x7k2p", None, False),
    ],
    ids=["pods are known", "static ones alone are", "of a static pod", "of an init container"],
)
def test_a_pod_that_failed_ends_although_the_kubelet_has_it_on_record(
    listed: str, owner: Owner | None, is_freed: bool
) -> None:
    """After a reboot the kubelet fails its pods, and writes its record when it next gives units."""
    other = Listed(Owner("system", listed, "main"), frozenset())

    def look_at(allocation: Allocation, now_s: float, running: bool = False) -> ListingFindings:
        return examine(
            AllocationBook.of([allocation]),
            [other],
            now_s,
            lambda _: running,
            recorded=lambda _: True,
            node="node",
        )

    first = look_at(replace(HELD, owner=owner), NOW)
    assert not first.ended
    if not is_freed:
        assert not first.changed
        return
    (missing,) = first.changed
    assert not look_at(missing, NOW + RECORDED_AFTER_S - 0.1).ended
    assert look_at(missing, NOW + RECORDED_AFTER_S).ended == (missing,)
    assert not look_at(missing, NOW + RECORDED_AFTER_S, running=True).ended


def test_a_pod_under_admission_is_waited_for() -> None:
    (missing,) = look(HELD, now=NOW).changed

    assert not look(missing, now=NOW + NEVER_SEEN_AFTER_S - 0.1).ended
    assert look(missing, now=NOW + NEVER_SEEN_AFTER_S).ended


def test_an_offer_by_the_kubelet_ends_one_that_is_not_listed_any_more() -> None:
    known = replace(HELD, owner=OWNER)

    assert look(known, offered=frozenset({"GPU-0::m0"})).ended == (known,)


def test_an_offer_by_the_kubelet_ends_one_never_listed_that_two_listings_miss() -> None:
    offered = frozenset({"GPU-0::m0"})

    first = look(HELD, offered=offered)
    assert not first.ended, "the kubelet may not have recorded our answer yet"

    assert look(first.changed[0], offered=offered).ended == first.changed


def test_a_half_whose_partner_was_refused_ends_with_the_next_offer() -> None:
    refused = replace(HELD, memory=(), refused=True)

    assert look(refused, offered=frozenset({"GPU-0::c0"})).ended == (refused,)


def test_an_offer_of_an_init_containers_units_ends_its_whole_pod() -> None:
    """The later container has the core units alone, since its pod failed; memory is offered."""
    init = replace(HELD, missing_since=NOW)
    half = replace(HELD, allocation_id="app", memory=(), missing_since=NOW)

    def ended(offered: frozenset[str]) -> set[Allocation]:
        found = examine(AllocationBook.of([init, half]), [], NOW, lambda _: False, offered)
        return set(found.ended)

    assert ended(frozenset({"GPU-0::m0"})) == {init, half}
    assert not ended(frozenset())
    half = replace(half, settled=False)
    assert not ended(frozenset({"GPU-0::m0"})), "it may be another's, who is being admitted"


def test_units_that_the_kubelet_forgot_stay_with_a_running_container() -> None:
    """The kubelet lists the pod, without its units, and offers them to the next (k8s#137534)."""
    known = replace(HELD, owner=OWNER, started=True, missing_since=NOW)
    listed = Listed(OWNER, frozenset())

    held = look(known, listed, now=NOW + 60, running=True, offered=UNITS)
    ended = look(known, listed, now=NOW + 60, running=False, offered=UNITS)

    assert not held.ended
    assert ended.ended == (known,)


def test_a_holding_of_one_container_has_no_conflict() -> None:
    assert conflict(AllocationBook.of([HELD]), HELD, [Listed(OWNER, UNITS)]) is None
    assert conflict(AllocationBook.of([HELD]), HELD, []) is None


@pytest.mark.parametrize("unit", sorted(UNITS))
def test_a_holding_of_two_containers_is_a_conflict(unit: str) -> None:
    other = Owner("team", "pod", "other")
    listing = [Listed(OWNER, frozenset({unit})), Listed(other, UNITS - {unit})]

    problem = conflict(AllocationBook.of([HELD]), HELD, listing)

    assert problem is not None
    assert "went to different containers" in problem


def test_a_container_with_two_holdings_is_a_conflict() -> None:
    second = replace(
        HELD, allocation_id="id2", uuid="GPU-1", core=("GPU-1::c0",), memory=("GPU-1::m0",)
    )
    both = Listed(OWNER, UNITS | {"GPU-1::c0", "GPU-1::m0"})

    problem = conflict(AllocationBook.of([HELD, second]), HELD, [both])

    assert problem is not None
    assert "slices of GPU GPU-0 and GPU GPU-1" in problem


GPU = "nvidia.com/gpu"


def test_a_container_with_a_slice_and_a_whole_device_is_a_conflict_from_either_side() -> None:
    both = [Listed(OWNER, UNITS, ((GPU, "GPU-7"),))]

    said = conflict(AllocationBook.of([HELD]), HELD, both)
    assert said is not None and "a container has either slices or whole devices" in said
    said = device_conflict(GPU, ["GPU-7"], both)
    assert said is not None and "a container has either slices or whole devices" in said


def test_a_device_that_two_containers_have_is_a_conflict() -> None:
    other = Owner("ns", "other", "c")
    listing = [Listed(who, frozenset(), ((GPU, "GPU-7"),)) for who in (OWNER, other)]

    said = device_conflict(GPU, ["GPU-7"], listing)

    assert said is not None and f"{OWNER} and {other} at once" in said
    assert device_conflict(GPU, ["GPU-7"], listing[:1]) is None
    assert device_conflict(f"{GPU}.shared", ["GPU-7"], listing) is None
