"""The simulated API server with what tests put into it, find in it and ask it about its calls."""

import json
import math
import shutil
import urllib.parse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from benchmarks.simulated_cluster.api_server import SimulatedApiServer
from benchmarks.simulated_cluster.kinds import EVENT, LEASE, NODE, POD, Kind
from benchmarks.simulated_cluster.refusals import ApiFailure
from deviceplugin.kube.api_client import ApiServer
from deviceplugin.model.pod_requests import PodRequest
from deviceplugin.model.published import (
    COMPONENT,
    COMPONENT_LABEL,
    INVENTORY_KEY,
    PublishedNode,
    encode,
)
from support.scheduler.values import DOMAIN, published

NAMESPACE = "vgpu-system"


class ClusterServer(SimulatedApiServer):
    """The server; skips the test where there is no openssl, which makes its certificate."""

    def __init__(self, base: Path, namespace: str = NAMESPACE) -> None:
        if shutil.which("openssl") is None:
            pytest.skip("openssl, which makes the server's certificate, is not installed")
        base.mkdir(exist_ok=True)
        super().__init__(base, namespace)

    def be_found(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Is the API server that the agent finds from now on."""
        api = self.api()
        monkeypatch.setattr(ApiServer, "from_environment", lambda environ: api)

    def refuse(self, status: int, what: str = "") -> None:
        """Answers all calls with a status until `faults.clear`; those whose path is ``what``."""
        self.faults.plant(status, what, math.inf)

    # ---- what it keeps -------------------------------------------------------------------------

    def put(self, kind: Kind, name: str, namespace: str = "default", **content: Any) -> None:
        """Creates an object, or replaces what it has besides its name and UID."""
        place = {"namespace": namespace} if kind.namespaced else {}
        metadata = {**content.pop("metadata", {}), "name": name, **place}
        made = json.loads(json.dumps({**content, "metadata": metadata}))  # is the store's alone

        def edit(known: dict[str, Any]) -> None:
            known.clear()
            known.update(made)

        with self.store.lock:
            if self.find(kind, name, namespace) is None:
                self.store.create(kind, made)
            else:
                self.store.change(kind, place.get("namespace", ""), name, edit)

    def find(self, kind: Kind, name: str, namespace: str = "default") -> dict[str, Any] | None:
        """Returns an object, None where there is none."""
        try:
            return self.store.get(kind, namespace if kind.namespaced else "", name).copy()
        except ApiFailure:
            return None

    def all(self, kind: Kind) -> list[dict[str, Any]]:
        """Returns all objects of a kind."""
        return [each.copy() for each in self.store.list(kind)[1]]

    def remove(self, kind: Kind, name: str, namespace: str = "default") -> None:
        """Deletes an object at once."""
        self.store.delete(kind, namespace if kind.namespaced else "", name)

    @property
    def events(self) -> list[dict[str, Any]]:
        """All Events."""
        return self.all(EVENT)

    def label_node(self, name: str, **labels: str) -> None:
        """Has a Node with these labels, and no others; its UID is ``uid-NAME``."""
        self.put(NODE, name, metadata={"uid": f"uid-{name}", "labels": labels})

    def label_pod(self, name: str, namespace: str = "default", **labels: str) -> None:
        """Has a pod with these labels; its UID is ``uid-NAME``."""
        self.put(POD, name, namespace, metadata={"uid": f"uid-{name}", "labels": labels})

    def publish(self, name: str, node: PublishedNode | None = None) -> None:
        """Has a node's agent publish an inventory, of two GPUs where none is given."""
        annotations = {f"{DOMAIN}/{INVENTORY_KEY}": encode(node or published(node=name))}
        metadata = {"labels": {COMPONENT_LABEL: COMPONENT}, "annotations": annotations}
        self.put(LEASE, name, NAMESPACE, metadata=metadata, spec={})

    def create_pod(self, pod: Mapping[str, Any]) -> dict[str, Any]:
        """Creates a pod and returns it as the API server has it."""
        return self.store.create(POD, json.loads(json.dumps(pod))).copy()

    def put_pod(self, request: PodRequest) -> None:
        """Has a pod that asks for what a request says; bound where its node says so."""
        containers = [
            {"name": c.name, "image": "x",
             "resources": {"limits": {key: str(n) for key, n in c.amounts.items()}}}
            for c in request.containers
        ]  # fmt: skip
        self.put(
            POD, request.name, request.namespace,
            metadata={"uid": request.uid, "annotations": dict(request.annotations)},
            spec={"nodeName": request.node, "containers": containers},
            status={"phase": "Pending"},
        )  # fmt: skip

    # ---- what it was asked ---------------------------------------------------------------------

    @property
    def calls(self) -> list[tuple[str, str]]:
        """Method and path of each call, without the query."""
        return [(method, target.partition("?")[0]) for method, target in list(self.called)]

    def asked(self, kind: Kind, watch: bool) -> list[dict[str, str]]:
        """Returns the parameters of each list or each watch of a kind, in all namespaces."""
        found = []
        for method, target in list(self.called):
            path, _, query = target.partition("?")
            parameters = dict(urllib.parse.parse_qsl(query))
            is_list = method == "GET" and path.endswith(f"/{kind.plural}")
            if is_list and ("watch" in parameters) is watch:
                found.append(parameters)
        return found
