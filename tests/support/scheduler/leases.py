"""Leases as an API server keeps them, for tests of the election."""

import json
from typing import Any

import msgspec
import pytest

from deviceplugin.kube.api_client import ApiRefused, ApiServer, ApiUnreachable
from deviceplugin.scheduler.binding import former_lease, leader

_FOLDER = "/apis/coordination.k8s.io/v1/namespaces/"


class Leases:
    """One Lease of each namespace.

    Attributes:
        down: for whom no call is answered, by the place of its election.
        forbidden: methods that nobody may use, by namespace.
        lose_answer: whether what was done is not answered.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Answers the calls of the election."""
        self.leases: dict[str, dict[str, Any]] = {}
        self.version = 0
        self.down: set[str] = set()
        self.forbidden: dict[str, set[str]] = {}
        self.lose_answer = False
        self.calls: list[str] = []
        for module in (leader, former_lease):
            monkeypatch.setattr(module, "call", self.call)

    def call(self, api: ApiServer, method: str, path: str, body: Any = None, **more: Any) -> bytes:
        if api.where in self.down:
            raise ApiUnreachable("no answer")
        self.calls.append(method)
        where, _, name = path.removeprefix(_FOLDER).partition("/leases")
        assert name == ("" if method == "POST" else "/lead")
        if method in self.forbidden.get(where, ()):
            raise ApiRefused(403, "forbidden")
        if method == "POST" and where in self.leases:
            raise ApiRefused(409, "exists")
        if method != "POST" and where not in self.leases:
            raise ApiRefused(404, "no such Lease")
        if method != "GET":
            self.write(where, method, json.loads(msgspec.json.encode(body)))
        if self.lose_answer:
            raise ApiUnreachable("the answer is lost")
        return json.dumps(self.leases[where]).encode()

    def write(self, where: str, method: str, new: dict[str, Any]) -> None:
        there = self.leases.get(where, {"metadata": {}, "spec": {}})
        metadata = new.get("metadata", {})
        version = metadata.get("resourceVersion")
        is_known = version == there["metadata"].get("resourceVersion")
        if (method == "PUT" or version is not None) and not is_known:
            raise ApiRefused(409, "modified")
        self.version += 1
        spec = {**(there["spec"] if method == "PATCH" else {}), **new["spec"]}
        metadata = {**metadata, "resourceVersion": str(self.version)}
        self.leases[where] = {"metadata": metadata, "spec": spec}

    def holder(self, where: str) -> str:
        return str(self.leases[where]["spec"].get("holderIdentity"))
