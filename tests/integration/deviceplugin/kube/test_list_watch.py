"""Objects followed by list and watch, against a stand-in API server over TLS."""

import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from benchmarks.simulated_cluster.api_server import SimulatedApiServer
from benchmarks.simulated_cluster.kinds import POD
from deviceplugin.kube import list_watch, object_pages
from deviceplugin.kube.list_watch import EventType, Follower
from deviceplugin.log import LOGGER
from support.api_server.cluster_server import ClusterServer
from support.waiting import wait_until

PATH = POD.path()
SELECTOR = "metadata.name!=x"


class Metadata(msgspec.Struct):
    name: str


class Thing(msgspec.Struct):
    metadata: Metadata
    size: int = 0


class World:
    """What a follower told."""

    def __init__(self) -> None:
        self.things: dict[str, int] = {}
        self.lists = 0
        self.events: list[tuple[EventType, str]] = []
        self.fail_next = False

    def on_list(self, things: list[Thing]) -> None:
        self.lists += 1
        self.things = {each.metadata.name: each.size for each in things}

    def on_event(self, kind: EventType, thing: Thing) -> None:
        if self.fail_next:
            self.fail_next = False
            raise OSError("a callback's own")
        self.events.append((kind, thing.metadata.name))
        if kind is EventType.DELETED:
            self.things.pop(thing.metadata.name, None)
        else:
            self.things[thing.metadata.name] = thing.size


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_watch, "FIRST_PAUSE_S", 0.02)
    monkeypatch.setattr(list_watch, "LONGEST_PAUSE_S", 0.1)


@pytest.fixture
def server(server: ClusterServer) -> ClusterServer:
    for number in range(5):
        put(server, f"p{number}", size=number)
    return server


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def follow(server: ClusterServer, world: World) -> Iterator[Callable[..., Follower[Thing]]]:
    started: list[Follower[Thing]] = []

    def start(**more: Any) -> Follower[Thing]:
        follower = Follower(
            server.api(),
            PATH,
            {"fieldSelector": SELECTOR},
            Thing,
            world.on_list,
            world.on_event,
            "things",
            **more,
        )
        started.append(follower)
        follower.start()
        assert follower.wait_synced(60)
        return follower

    yield start
    for each in started:
        each.stop()


def put(server: ClusterServer, name: str, **content: Any) -> None:
    server.put(POD, name, **content)


def lists(server: ClusterServer) -> list[dict[str, str]]:
    return server.asked(POD, watch=False)


def watches(server: ClusterServer) -> list[dict[str, str]]:
    return server.asked(POD, watch=True)


def watched(server: ClusterServer) -> None:
    wait_until(lambda: server.open_watches == 1, "a watch is open")


def test_all_pages_are_listed_and_then_events_follow(
    server: ClusterServer, world: World, follow: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_pages, "PAGE", 2)
    version = str(server.store.version)
    follower = follow()

    assert world.things == {f"p{number}": number for number in range(5)}
    assert ["continue" in each for each in lists(server)] == [False, True, True]
    assert all(each["fieldSelector"] == SELECTOR for each in lists(server))
    watched(server)
    assert follower.is_current
    assert watches(server)[0]["allowWatchBookmarks"] == "true"
    assert 0 < int(watches(server)[0]["timeoutSeconds"]) < 600
    assert watches(server)[0]["resourceVersion"] == version
    put(server, "p9", size=9)
    put(server, "p0", size=70)
    server.remove(POD, "p1")
    wait_until(lambda: len(world.events) == 3)
    assert world.events == [("ADDED", "p9"), ("MODIFIED", "p0"), ("DELETED", "p1")]
    assert world.things == {"p0": 70, "p2": 2, "p3": 3, "p4": 4, "p9": 9}


@pytest.mark.parametrize(
    "end", [lambda server: server.say(None), SimulatedApiServer.drop_watches], ids=["end", "break"]
)
def test_a_watch_that_ends_goes_on_from_what_was_told_last(
    server: ClusterServer, world: World, follow: Any, end: Callable[[SimulatedApiServer], None]
) -> None:
    follow()
    watched(server)
    put(server, "p5", size=5)
    version = str(server.store.version)
    wait_until(lambda: world.things.get("p5") == 5)

    end(server)
    wait_until(lambda: len(watches(server)) == 2)
    put(server, "p6", size=6)

    wait_until(lambda: world.things.get("p6") == 6)
    assert watches(server)[1]["resourceVersion"] == version
    assert world.lists == 1
    assert world.events == [("ADDED", "p5"), ("ADDED", "p6")]


def test_a_bookmark_moves_the_version_and_tells_nothing(
    server: ClusterServer, world: World, follow: Any
) -> None:
    follow()
    watched(server)
    server.say(b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"900"}}}\n')
    server.say(None)
    wait_until(lambda: len(watches(server)) == 2)

    assert watches(server)[1]["resourceVersion"] == "900"
    assert not world.events


@pytest.mark.parametrize("as_event", [False, True])
def test_a_version_that_is_gone_is_listed_again(
    server: ClusterServer, world: World, follow: Any, as_event: bool
) -> None:
    follow()
    watched(server)
    if not as_event:
        server.faults.plant(410, "watch=")
    with server.store.lock:
        server.drop_watches()
        server.remove(POD, "p0")  # a deletion that no watch will tell
        server.store.forget_changes()

    wait_until(lambda: world.lists == 2)
    assert "p0" not in world.things
    watched(server)
    put(server, "p7", size=7)
    wait_until(lambda: world.things.get("p7") == 7)


def test_a_continue_token_that_expires_starts_the_list_over(
    server: ClusterServer, world: World, follow: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_pages, "PAGE", 2)
    server.faults.plant(410, "continue=")

    follow()

    has_token = ["continue" in each for each in lists(server)]
    assert has_token == [False, True, False, True, True]
    assert len(world.things) == 5
    assert world.lists == 1


def test_a_server_that_is_gone_leaves_what_was_known_and_is_not_current(
    server: ClusterServer, world: World, follow: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(list_watch, "CURRENT_S", 0.1)
    follower = follow()
    watched(server)

    server.stop()
    wait_until(lambda: not follower.is_current)
    wait_until(lambda: follower.problem != "")
    assert len(world.things) == 5

    put(server, "p8", size=8)
    server.start()
    wait_until(lambda: world.things.get("p8") == 8)
    assert follower.is_current
    assert follower.problem == ""


def test_a_version_that_a_restored_server_does_not_know_is_given_up(
    server: ClusterServer, world: World, follow: Any
) -> None:
    server.refuse(504, "watch=")  # "Too large resource version"
    follow()
    wait_until(lambda: world.lists >= 2)

    server.faults.clear()
    watched(server)


def test_who_may_not_watch_is_told_and_asks_again(
    server: ClusterServer, world: World, follow: Any
) -> None:
    server.refuse(403, "watch=")
    follower = follow()
    wait_until(lambda: "403: planted" in follower.problem)

    server.faults.clear()
    wait_until(lambda: follower.problem == "")


def test_what_is_malformed_is_passed_over_and_told_once(
    server: ClusterServer, world: World, follow: Any
) -> None:
    told: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: told.append(record.getMessage())  # type: ignore[method-assign]
    LOGGER.addHandler(handler)
    try:
        put(server, "bad", size="large", metadata={"uid": "u1"})
        follower = follow()
        assert "bad" not in world.things and len(world.things) == 5
        watched(server)
        put(server, "bad", size="huge", metadata={"uid": "u1"})
        put(server, "p5", size=5)
        wait_until(lambda: "p5" in world.things)
    finally:
        LOGGER.removeHandler(handler)

    assert follower.malformed == 2
    assert world.lists == 1
    assert len([each for each in told if "malformed" in each]) == 1


def test_nonsense_in_a_watch_is_answered_by_a_list(
    server: ClusterServer, world: World, follow: Any
) -> None:
    follow()
    watched(server)

    server.say(b'{"type": "ADDED", "obj\n')

    wait_until(lambda: world.lists == 2)


def test_a_callback_that_fails_gets_a_list(
    server: ClusterServer, world: World, follow: Any
) -> None:
    follow()
    watched(server)
    world.fail_next = True

    put(server, "p5", size=5)

    wait_until(lambda: world.lists == 2)
    assert world.things["p5"] == 5


def test_a_page_that_is_too_large_is_asked_for_in_parts(
    server: ClusterServer, world: World, follow: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_pages, "MOST_PAGE_BYTES", 2000)
    for number in range(100):
        put(server, f"q{number}", size=number, text="x" * 100)

    follow()

    assert len(world.things) == 105
    assert [each["limit"] for each in lists(server)][:5] == ["500", "125", "31", "7", "7"]


def test_what_is_trimmed_away_is_not_listed(
    server: ClusterServer, world: World, follow: Any
) -> None:
    follow(trim=lambda thing: thing if thing.size % 2 else None)

    assert world.things == {"p1": 1, "p3": 3}


def test_a_token_and_a_ca_that_are_renewed_are_read_again(
    server: ClusterServer, world: World, follow: Any, tmp_path: Path
) -> None:
    follow()
    watched(server)
    server.token = "the-next-token"
    (server.account / "token").write_text("the-next-token\n")
    server.stop()
    renewed = ClusterServer(tmp_path / "other")
    for name in ("ca.crt", "server.key"):
        (renewed.account / name).replace(server.account / name)
    server.start()

    watched(server)
    put(server, "p5", size=5)
    wait_until(lambda: world.things.get("p5") == 5)


def test_stopping_ends_the_thread_within_a_watch(
    server: ClusterServer, world: World, follow: Any
) -> None:
    follower = follow()
    watched(server)

    follower.stop()

    wait_until(lambda: "things" not in {each.name for each in threading.enumerate()}, patience_s=5)
    put(server, "p5", size=5)
    assert not world.events
