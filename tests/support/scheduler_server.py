"""A stand-in API server with what a scheduler needs: pods to bind, and a Lease to lead by."""

import copy
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deviceplugin.model.pod_requests import PodRequest
from deviceplugin.pages.published import (
    COMPONENT,
    COMPONENT_LABEL,
    INVENTORY_KEY,
    PublishedNode,
    encode,
)

from .list_watch_server import ListWatchServer
from .scheduler_values import DOMAIN

NAMESPACE = "vgpu"
PODS = "/api/v1/pods"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
_POD = re.compile(r"/api/v1/namespaces/([^/]+)/pods/([^/]+)(/binding)?")
_LEASE = re.compile(rf"{LEASES}(?:/([^/]+))?")


def _status(code: int, message: str) -> tuple[int, dict[str, Any]]:
    return code, {"kind": "Status", "status": "Failure", "code": code, "message": message}


def make_scheduler_server(base: Path) -> "SchedulerServer":
    """Returns one that does not serve yet; skips the test where there is no openssl."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl, which makes the test's certificate, is not installed")
    return SchedulerServer(base)


class SchedulerServer(ListWatchServer):
    """The server.

    Attributes:
        waiting: pods that are not bound, by namespace/name.
        bound: node and annotations of each pod that was bound, by the same.
        bindings: how many were asked for.
        before_binding: called before each is looked at; what it returns, unless None, is the
            answer's status, 0 for none.
        after_binding: the same after it is done.
        leader_leases: by name.
    """

    def __init__(self, base: Path) -> None:
        super().__init__(base)
        self.waiting: dict[str, dict[str, Any]] = {}
        self.bound: dict[str, tuple[str, dict[str, str]]] = {}
        self.bindings = 0
        self.before_binding: Callable[[], int | None] = lambda: None
        self.after_binding: Callable[[], int | None] = lambda: None
        self.leader_leases: dict[str, dict[str, Any]] = {}
        self._objects[PODS] = {}
        self._objects[LEASES] = {}

    def add_node(self, name: str, node: PublishedNode) -> None:
        """Publishes the inventory of a node."""
        annotations = {f"{DOMAIN}/{INVENTORY_KEY}": encode(node)}
        metadata = {"labels": {COMPONENT_LABEL: COMPONENT}, "annotations": annotations}
        self.put(LEASES, name, {"metadata": metadata, "spec": {}})

    def add_pod(self, request: PodRequest) -> None:
        """Creates a pod; bound where its node says so."""
        key = f"{request.namespace}/{request.name}"
        body = {
            "metadata": {
                "name": request.name,
                "namespace": request.namespace,
                "uid": request.uid,
                "annotations": dict(request.annotations),
            },
            "spec": {
                "nodeName": request.node,
                "containers": [
                    {
                        "name": each.name,
                        "image": "x",
                        "resources": {"limits": {k: str(n) for k, n in each.amounts.items()}},
                    }
                    for each in request.containers
                ],
            },
            "status": {"phase": "Pending"},
        }
        if request.node:
            self.put(PODS, key, body)
        else:
            self.waiting[key] = body

    def answer(self, method: str, path: str, token: str, body: Any) -> tuple[int, Any]:
        """Returns status and body of the answer to one call."""
        if token != f"Bearer {self.token}":
            return _status(401, "who are you?")
        if self.refuse_with:
            return _status(self.refuse_with, "planted")
        pod, lease = _POD.fullmatch(path), _LEASE.fullmatch(path)
        if pod is not None and pod[3] and method == "POST":
            planted = self.before_binding()
            if planted is None:
                found = self._bind(f"{pod[1]}/{pod[2]}", body)
                planted = self.after_binding()
            return found if planted is None else _status(planted, "planted")
        with self._lock:
            if pod is not None:
                key = f"{pod[1]}/{pod[2]}"
                known = self.waiting.get(key) or self._objects[PODS].get(key)
                return (200, copy.deepcopy(known)) if known else _status(404, "no such pod")
            if lease is not None:
                return self._lease(method, lease[1], body)
        return _status(404, "not found")

    def _bind(self, key: str, body: dict[str, Any]) -> tuple[int, Any]:
        with self._lock:
            self.bindings += 1
            known = self.waiting.get(key) or self._objects[PODS].get(key)
            if known is None:
                return _status(404, f'pods "{key}" not found')
            if body["metadata"].get("uid", known["metadata"]["uid"]) != known["metadata"]["uid"]:
                return _status(409, "Precondition failed: UID in precondition")
            if known["metadata"].get("deletionTimestamp"):
                return _status(409, "pod is being deleted, cannot be assigned to a host")
            if known["spec"]["nodeName"]:
                return _status(409, f"pod is already assigned to node {known['spec']['nodeName']}")
            known["spec"]["nodeName"] = body["target"]["name"]
            known["metadata"]["annotations"].update(body["metadata"].get("annotations") or {})
            self.bound[key] = body["target"]["name"], known["metadata"]["annotations"]
            del self.waiting[key]
            self.put(PODS, key, known)
            return 201, {"kind": "Status", "status": "Success"}

    def _lease(self, method: str, name: str | None, body: Any) -> tuple[int, Any]:
        self.version += 1
        if method == "POST":
            name = str(body["metadata"]["name"])
            if name in self.leader_leases:
                return _status(409, "exists")
        known = self.leader_leases.get(name or "")
        if method != "POST" and known is None:
            return _status(404, "no such Lease")
        if method == "GET":
            return 200, known
        if known and body["metadata"]["resourceVersion"] != known["metadata"]["resourceVersion"]:
            return _status(409, "the object has been modified")
        body["metadata"]["resourceVersion"] = str(self.version)
        self.leader_leases[name or ""] = body
        return 200, body
