"""The simulated API server over TLS: watches, and what goes wrong on request."""

import json
import ssl
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from benchmarks.simulated_cluster import pod_calls
from benchmarks.simulated_cluster.api_server import SimulatedApiServer
from benchmarks.simulated_cluster.faults import CUT
from benchmarks.simulated_cluster.kinds import POD
from deviceplugin.kube.api_client import ApiRefused, ApiUnreachable
from support.waiting import PATIENCE_S, wait_until


class Client:
    """A client that keeps its connection."""

    def __init__(self, server: SimulatedApiServer) -> None:
        context = ssl.create_default_context(cafile=server.account / "ca.crt")
        self._client = httpx2.Client(verify=context, timeout=PATIENCE_S, trust_env=False)
        self._url = f"https://127.0.0.1:{server.port}"
        self._headers = {"Authorization": f"Bearer {server.token}"}

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        return self._client.request(
            method, self._url + path, json=body, headers=self._headers
        ).json()

    def watch(self, query: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Opens a watch; what it yields ends with `httpx2.HTTPError` where it was cut."""
        request = self._client.build_request(
            "GET", f"{self._url}/api/v1/pods?watch=1&{query}", headers=self._headers
        )
        answer = self._client.send(request, stream=True)
        assert answer.status_code == 200

        def events() -> Iterator[tuple[str, dict[str, Any]]]:
            for line in answer.iter_lines():
                event = json.loads(line)
                yield event["type"], event["object"]

        return events()


def create(server: SimulatedApiServer, name: str) -> None:
    content = {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [{"name": "main"}]},
    }
    pod_calls.prepare(content)
    server.store.create(POD, content)


def bind(server: SimulatedApiServer, name: str, node: str) -> None:
    pod_calls.bind(server.store, "default", name, {"target": {"name": node}})


def test_a_watch_tells_what_happens_after_its_version(server: SimulatedApiServer) -> None:
    create(server, "before")
    watch = Client(server).watch(f"resourceVersion={server.store.version}")
    create(server, "after")
    bind(server, "after", "n1")
    server.store.delete(POD, "default", "before")
    seen = [next(watch) for _ in range(3)]
    assert [(kind, each["metadata"]["name"]) for kind, each in seen] == [
        ("ADDED", "after"),
        ("MODIFIED", "after"),
        ("DELETED", "before"),
    ]
    assert {each["kind"] for _, each in seen} == {"Pod"}
    versions = [int(each["metadata"]["resourceVersion"]) for _, each in seen]
    assert versions == sorted(versions)


def test_a_pod_comes_into_a_selection_and_leaves_it(server: SimulatedApiServer) -> None:
    create(server, "a")
    fields = "fieldSelector=spec.nodeName%3Dn1%2Cstatus.phase%21%3DSucceeded"
    watch = Client(server).watch(f"resourceVersion={server.store.version}&{fields}")
    create(server, "elsewhere")
    bind(server, "elsewhere", "n2")
    bind(server, "a", "n1")
    pod_calls.set_phase(server.store, "default", "a", "Running")
    pod_calls.set_phase(server.store, "default", "a", "Succeeded")
    seen = [next(watch) for _ in range(3)]
    assert [(kind, each["metadata"]["name"]) for kind, each in seen] == [
        ("ADDED", "a"),
        ("MODIFIED", "a"),
        ("DELETED", "a"),
    ]
    assert seen[2][1]["status"]["phase"] == "Running"
    assert int(seen[2][1]["metadata"]["resourceVersion"]) == server.store.version


def test_a_watch_without_a_version_begins_with_what_is_there(server: SimulatedApiServer) -> None:
    create(server, "a")
    watch = Client(server).watch("resourceVersion=0")
    kind, found = next(watch)
    assert (kind, found["metadata"]["name"]) == ("ADDED", "a")


def test_bookmarks_tell_how_far_a_watch_is(server: SimulatedApiServer) -> None:
    server.bookmark_every_s = 0.05
    create(server, "a")
    version = server.store.version
    watch = Client(server).watch(f"resourceVersion={version}&allowWatchBookmarks=true")
    kind, found = next(watch)
    assert kind == "BOOKMARK" and found["metadata"]["resourceVersion"] == str(version)


def test_a_watch_ends_when_its_time_is_over(server: SimulatedApiServer) -> None:
    watch = Client(server).watch("resourceVersion=0&timeoutSeconds=1")
    assert list(watch) == []
    wait_until(lambda: server.open_watches == 0, "the watch is closed")


def test_a_watch_of_what_was_forgotten_is_told_so(server: SimulatedApiServer) -> None:
    create(server, "a")
    old = server.store.version
    server.expire()
    too_late = Client(server).watch(f"resourceVersion={old}")
    open_one = Client(server).watch(f"resourceVersion={server.store.version}")
    wait_until(lambda: server.open_watches == 1, "the watch is open")
    server.expire()
    for watch in (too_late, open_one):
        kind, status = next(watch)
        assert (kind, status["code"], status["reason"]) == ("ERROR", 410, "Expired")
        assert next(watch, None) is None


def test_watches_are_dropped(server: SimulatedApiServer) -> None:
    watch = Client(server).watch("resourceVersion=0")
    create(server, "a")
    assert next(watch)[0] == "ADDED"
    server.drop_watches()
    with pytest.raises(httpx2.HTTPError):
        list(watch)


def test_planted_answers_and_cut_connections(server: SimulatedApiServer) -> None:
    create(server, "a")
    api = server.api()
    server.faults.plant(500, "GET .*/pods/a")
    with pytest.raises(ApiUnreachable, match="500"):
        api.pod("default", "a")
    assert api.pod("default", "a") is not None
    server.faults.plant(CUT, "GET .*/pods/a")
    with pytest.raises(ApiUnreachable, match="does not answer"):
        api.pod("default", "a")
    server.faults.plant(409)
    with pytest.raises(ApiRefused, match="planted"):
        api.pod("default", "a")
    assert server.counted["GET pods"] == 4


def test_an_answer_is_lost_and_the_call_was_carried_out(server: SimulatedApiServer) -> None:
    create(server, "a")
    server.faults.plant(CUT, "binding", is_done=True)
    with pytest.raises(httpx2.HTTPError):
        Client(server).ask(
            "POST", "/api/v1/namespaces/default/pods/a/binding", {"target": {"name": "n"}}
        )
    assert server.store.get(POD, "default", "a").content["spec"]["nodeName"] == "n"


def test_it_goes_away_and_comes_back_with_what_it_kept(server: SimulatedApiServer) -> None:
    create(server, "a")
    api, port = server.api(), server.port
    watch = Client(server).watch("resourceVersion=0")
    assert next(watch)[0] == "ADDED"
    server.stop()
    with pytest.raises(httpx2.HTTPError):
        list(watch)
    with pytest.raises(ApiUnreachable):
        api.pod("default", "a")
    server.start()
    assert server.port == port and api.pod("default", "a") is not None
