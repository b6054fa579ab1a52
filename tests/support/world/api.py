"""The API server of a world: the agent's own client, with the calls answered here.

It keeps the pods of the node and whatever else the agent writes. It may be away, answer late, and
forget the versions that a watch could go on from.
"""

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from typing import Any

import httpx2
from lightkube.models.meta_v1 import ObjectMeta

from deviceplugin.kube.api_client import ApiRefused, ApiServer, ApiUnreachable
from deviceplugin.testing import PodManifest

from .one_failure import OneFailure
from .turns import Turns
from .waits import Condition, Lock

NODE = "n1"
_Object = dict[str, Any]


class _Response:
    """What a call by its path is answered with."""

    status_code = HTTPStatus.OK
    extensions: Mapping[str, Any] = {}

    def __init__(self, parts: Iterator[bytes], status: HTTPStatus = HTTPStatus.OK) -> None:
        self._parts, self.status_code = parts, status

    def iter_bytes(self) -> Iterator[bytes]:
        return self._parts


class _Client:
    """lightkube's client, as far as the agent uses it."""

    def __init__(self, server: "WorldApi") -> None:
        self._server = server

    def get(self, kind: Any, name: str, namespace: str = "") -> Any:
        return self._server.object(kind, name)

    def create(self, thing: Any) -> Any:
        self._server.make(type(thing), thing.metadata.name, thing)
        return thing

    def patch(self, kind: Any, name: str, values: Any, **_: Any) -> Any:
        found = self._server.object(kind, name)
        self._server.written.append((kind.__name__, name, values))
        return found


class WorldApi(ApiServer):
    """The API server.

    Attributes:
        is_away: nobody answers.
        written: what was written: kind, name, values.
        failure: is asked before each call, where there is one.
    """

    failure: OneFailure | None = None

    def __init__(self, turns: Turns) -> None:
        self.where, self.is_away, self._turns = "api:443", False, turns
        self.written: list[tuple[str, str, Any]] = []
        self.http = self  # type: ignore[assignment]  # for `raw_calls`
        self._objects: dict[tuple[str, str], Any] = {}
        self._pods: dict[str, _Object] = {}
        self._events: list[tuple[int, _Object]] = []
        self._version = self._oldest = 1
        self._changed = Condition(turns, Lock(turns))

    # ---- of the cluster ------------------------------------------------------------------------

    def bind(self, manifest: PodManifest) -> None:
        """A pod is bound to the node."""
        pod = _pod(manifest, f"uid-{manifest.name}", self._turns.now_s)
        self._pods[manifest.name] = pod
        self._tell("ADDED", pod)

    def delete(self, name: str) -> None:
        """A pod is gone."""
        pod = self._pods.pop(name, None)
        if pod is not None:
            self._tell("DELETED", pod)

    def go(self) -> None:
        """It answers nobody from now on; watches end."""
        self.is_away = True
        with self._changed:
            self._changed.notify_all()

    def come_back(self, forgets: bool) -> None:
        """It answers again.

        Args:
            forgets: no watch can go on from before.
        """
        self.is_away = False
        if forgets:
            self._version += 1000
            self._oldest, self._events = self._version, []

    def _tell(self, kind: str, pod: _Object) -> None:
        self._version += 1
        pod["metadata"]["resourceVersion"] = str(self._version)
        told = {"type": kind, "object": json.loads(json.dumps(pod))}
        self._events.append((self._version, told))
        with self._changed:
            self._changed.notify_all()

    # ---- of the agent's client -----------------------------------------------------------------

    @property
    def namespace(self) -> str:
        return "vgpu"

    def ask(self, call: Callable[[Any], Any]) -> Any:
        self._answer()
        return call(_Client(self))

    def node(self, name: str) -> ObjectMeta:
        self._answer()
        return ObjectMeta(name=name, uid="uid-node", labels={}, annotations={})

    def pod(self, namespace: str, name: str) -> ObjectMeta | None:
        self._answer()
        found = self._pods.get(name)
        return ObjectMeta(name=name, uid=found["metadata"]["uid"], labels={}) if found else None

    def object(self, kind: Any, name: str) -> Any:
        found = self._objects.get((kind.__name__, name))
        if found is None:
            raise ApiRefused(HTTPStatus.NOT_FOUND, f"there is no {kind.__name__} {name}")
        return found

    def make(self, kind: Any, name: str, thing: Any) -> None:
        if (kind.__name__, name) in self._objects:
            raise ApiRefused(HTTPStatus.CONFLICT, f"{kind.__name__} {name} is there")
        self._objects[kind.__name__, name] = thing

    def _answer(self) -> None:
        """Lets the call take its time.

        Raises:
            ApiUnreachable: it is away.
        """
        self._turns.point("api")
        if self.failure is not None:
            try:
                self.failure.meet("HTTP", self.where)
            except OSError as error:
                said = f"the API server {self.where} does not answer: {error.strerror}"
                raise ApiUnreachable(said) from None
        self._turns.sleep(self._turns.chance.choice((0.0, 0.002, 0.002, 0.05)))
        if self.is_away:
            raise ApiUnreachable("the API server is away")

    def get(self) -> Any:
        return self

    @contextlib.contextmanager
    def stream(
        self, method: str, path: str, params: Mapping[str, str], **_: Any
    ) -> Iterator[_Response]:
        try:
            self._answer()
        except ApiUnreachable as error:
            raise httpx2.ConnectError(error.message) from None
        assert (method, path) == ("GET", "/api/v1/pods"), (method, path)
        if "watch" not in params:
            listed = {
                "metadata": {"resourceVersion": str(self._version)},
                "items": list(self._pods.values()),
            }
            yield _Response(iter([json.dumps(listed).encode()]))
            return
        since, ends_s = int(params["resourceVersion"]), int(params["timeoutSeconds"])
        yield _Response(self._watch(since, self._turns.now_s + ends_s))

    def _watch(self, since: int, until_s: float) -> Iterator[bytes]:
        if since < self._oldest:
            gone = {"kind": "Status", "code": 410, "message": "too old", "metadata": {}}
            yield json.dumps({"type": "ERROR", "object": gone}).encode() + b"\n"
            return
        while self._turns.now_s < until_s:
            with self._changed:
                while not self.is_away and self._version <= since and self._turns.now_s < until_s:
                    self._changed.wait(until_s - self._turns.now_s)
            self._turns.sleep(self._turns.chance.choice((0.0, 0.002, 0.02, 0.2)))
            if self.is_away:
                raise httpx2.ReadError("the connection is lost")
            for version, told in list(self._events):
                if version > since:
                    yield json.dumps(told).encode() + b"\n"
            since = self._version


def _pod(manifest: PodManifest, uid: str, now_s: float) -> _Object:
    def containers(given: Any) -> list[_Object]:
        return [
            {
                "name": each.name,
                "resources": {"limits": {k: str(v) for k, v in each.limits.items()}},
            }
            for each in given
        ]

    return {
        "metadata": {"name": manifest.name, "namespace": manifest.namespace, "uid": uid,
                     "creationTimestamp": None},
        "spec": {"nodeName": NODE, "containers": containers(manifest.containers),
                 "initContainers": containers(manifest.init_containers)},
        "status": {"phase": "Pending"},
    }  # fmt: skip
