"""Who loses its place at a server, on a clock that the test moves."""

import pytest

from deviceplugin.serving.call_places import ClientGone, Places, source_of
from deviceplugin.serving.calls import Limits
from deviceplugin.serving.crowds import Phase, Place

LIMITS = Limits(connections=8, bodies_bytes=1000)


class Crowd:
    """Connections, some of which were ended."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.said: list[str] = []
        self.places = Places(LIMITS, lambda: self.now_s, self.said.append)
        self.ended: list[str] = []

    def come(self, name: str, phase: Phase = Phase.NEW) -> Place | None:
        """Lets ``SOURCE-NUMBER`` connect a moment after the one before."""
        self.now_s += 0.001
        source = name.partition("-")[0]
        place = self.places.enter(source, lambda: self.ended.append(name))
        if place is not None and phase is not Phase.NEW:
            self.places.note(place, phase)
        return place

    def some(self, count: int, source: str, phase: Phase = Phase.NEW) -> list[Place]:
        found = [self.come(f"{source}-{number}", phase) for number in range(count)]
        return [each for each in found if each is not None]


@pytest.fixture
def crowd() -> Crowd:
    return Crowd()


@pytest.mark.parametrize("phase", [Phase.NEW, Phase.IDLE, Phase.UNREAD, Phase.UNSENT])
def test_whoever_is_not_being_answered_can_lose_its_place(crowd: Crowd, phase: Phase) -> None:
    crowd.some(4, "a", phase)
    crowd.some(4, "b", phase)

    assert crowd.come("c-0") is not None
    assert crowd.ended == ["a-0"]


def test_a_connection_that_is_being_answered_keeps_its_place(crowd: Crowd) -> None:
    crowd.some(6, "a", Phase.ANSWERING)
    assert crowd.come("a-6") is None
    crowd.some(2, "b", Phase.ANSWERING)

    assert crowd.come("c-0") is None
    assert crowd.ended == []


def test_one_source_gets_no_more_than_three_quarters(crowd: Crowd) -> None:
    crowd.some(100, "a")

    assert len(crowd.ended) == 94
    assert len(crowd.some(2, "b")) == 2
    assert len(crowd.ended) == 94


def test_the_source_with_the_most_loses_though_others_are_older(crowd: Crowd) -> None:
    crowd.some(2, "honest", Phase.IDLE)
    crowd.some(6, "flood")
    for number in range(50):
        assert crowd.come(f"other{number}-0")

    assert crowd.ended[:4] == [f"flood-{number}" for number in range(4)]
    assert not [name for name in crowd.ended[:4] if name.startswith("honest")]


def test_behind_one_address_those_that_do_not_get_on_go_first(crowd: Crowd) -> None:
    """As where a network shows all clients as one address."""
    crowd.come("a-idle", Phase.IDLE)
    crowd.come("a-stalled", Phase.UNREAD)
    crowd.some(2, "a")
    crowd.now_s += 2.0
    crowd.come("a-young", Phase.UNREAD)
    for number in range(9):
        crowd.come(f"a-later{number}", Phase.UNREAD)

    # The idle one has had an answer.
    assert crowd.ended[:5] == ["a-stalled", "a-0", "a-1", "a-young", "a-later0"]
    assert "a-idle" not in crowd.ended


def test_a_crowd_from_any_number_of_addresses_takes_places_from_itself_alone(crowd: Crowd) -> None:
    kept = crowd.come("honest-idle")
    assert kept is not None
    crowd.places.know(kept)
    crowd.come("honest-answered", Phase.IDLE)
    for number in range(500):
        assert crowd.come(f"other{number}-0")
    assert crowd.come("honest-new")

    # Each of the crowd has one connection, the honest client three.
    assert [name for name in crowd.ended if name.startswith("honest")] == []
    assert len(crowd.ended) == 500 + 3 - LIMITS.connections


def test_who_is_known_keeps_half_of_the_places_and_no_more(crowd: Crowd) -> None:
    crowd.some(5, "a", Phase.IDLE)
    crowd.some(4, "b")
    assert crowd.ended == ["a-0"]

    crowd.some(4, "c")
    assert [name for name in crowd.ended if name.startswith("a")] == ["a-0"]


def test_who_lost_its_place_is_answered_no_more(crowd: Crowd) -> None:
    lost = crowd.some(7, "a")[0]
    assert crowd.ended == ["a-0"]

    with pytest.raises(ClientGone):
        crowd.places.note(lost, Phase.ANSWERING)
    with pytest.raises(ClientGone):
        crowd.places.take(lost, 1)
    crowd.places.leave(lost)
    assert crowd.come("b-0") and crowd.come("b-1")
    assert crowd.ended == ["a-0"]


def test_bytes_of_calls_that_do_not_get_on_make_room_for_others(crowd: Crowd) -> None:
    stalled, unread = crowd.come("a-stalled"), crowd.come("a-unread", Phase.UNSENT)
    answering, honest = crowd.come("a-answering", Phase.ANSWERING), crowd.come("b-honest")
    assert stalled and unread and answering and honest
    assert crowd.places.take(stalled, 400)
    crowd.places.hold(unread, 300)
    crowd.places.hold(answering, 300)
    assert not crowd.places.take(honest, 10)  # all may still be honest
    crowd.now_s += 2.0

    assert crowd.places.take(honest, 500)
    assert crowd.ended == ["a-stalled", "a-unread"]
    assert crowd.places.take(honest, 200) and not crowd.places.take(honest, 1)
    crowd.places.leave(honest)
    assert crowd.places.take(answering, 700)


def test_a_flood_is_said_once_a_minute(crowd: Crowd) -> None:
    crowd.some(50, "a")
    assert crowd.said == ["a"]
    crowd.now_s += 61.0
    crowd.some(50, "a")

    assert crowd.said == ["a", "a"]


def test_ipv4_by_way_of_ipv6_is_the_same_client() -> None:
    assert source_of(("::ffff:10.0.0.7", 1, 0, 0)) == source_of(("10.0.0.7", 2)) == "10.0.0.7"
    assert source_of(("fe80::1%eth0", 1, 0, 2)) == "fe80::1"
