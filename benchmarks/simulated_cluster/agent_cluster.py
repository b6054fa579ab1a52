"""A simulated cluster whose nodes have the real core of the agent: API server, nodes, their pods.

One thread does what the agents' loops do.
"""

import itertools
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from deviceplugin.kube.api_client import ApiServer

from .agent_node import Refusal, SimulatedNode
from .api_server import SimulatedApiServer
from .kinds import NODE, POD
from .machines import Machine
from .object_store import Change, ChangeKind, Stored
from .pod_calls import delete, prepare
from .pod_shapes import Amounts, Shape
from .refusals import ApiFailure

NAMESPACE = "vgpu-system"
LOOK_EVERY_S = 0.25


class AgentCluster:
    """Use it as a context manager.

    Attributes:
        server: its API server.
        nodes: by name.
    """

    def __init__(
        self, base: Path, machines: Sequence[Machine], seed: int, follows: bool = True
    ) -> None:
        """Makes the nodes, ``n000`` and so on; nothing runs yet.

        Args:
            base: an empty directory, best in memory.
            seed: of the kubelets' random choices.
            follows: the agents publish, and they and the kubelets follow pods by watches; else
                only the kubelets know of pods, at once.
        """
        self.server = SimulatedApiServer(base, NAMESPACE)
        self.server.start()
        self._made, self._follows = itertools.count(1), follows
        self._stop = threading.Event()
        self._loop = threading.Thread(target=self._look, name="agents", daemon=True)
        self.nodes: dict[str, SimulatedNode] = {}
        for number, machine in enumerate(machines):
            name = f"n{number:03}"
            self.server.store.create(NODE, {"metadata": {"name": name}})
            self.nodes[name] = SimulatedNode(
                name, machine, base / name, self.server.store, self._client(), seed + number
            )

    def _client(self) -> ApiServer | None:
        """Returns a client for one node: one has connections for some hundred watches at most."""
        return self.server.api() if self._follows else None

    def __enter__(self) -> "AgentCluster":
        for node in self.nodes.values():
            node.start()
        if not self._follows:
            with self.server.store.lock:
                self.server.store.subscribe(POD, self.server.store.version, self._take)
        self._loop.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.store.unsubscribe(POD, self._take)
        self._stop.set()
        self._loop.join()
        for node in self.nodes.values():
            node.stop()
        self.server.stop()

    @property
    def allocatable(self) -> Mapping[str, Amounts]:
        """What the kubelets tell of their nodes, by name and resource."""
        return {name: node.allocatable for name, node in self.nodes.items()}

    @property
    def refusals(self) -> list[Refusal]:
        """Pods that were bound and that the agent of their node then refused."""
        return [each for node in self.nodes.values() for each in node.refusals]

    @property
    def admitted(self) -> int:
        """How many pods the agents gave what they asked for."""
        return sum(node.admitted for node in self.nodes.values())

    def create(self, shape: Shape, name: str = "", namespace: str = "default") -> Stored:
        """Makes a pod."""
        content = shape.pod(name or f"pod-{next(self._made)}", namespace)
        prepare(content)
        return self.server.store.create(POD, content)

    def pod(self, namespace: str, name: str) -> Stored:
        """Returns a pod as it is now.

        Raises:
            ApiFailure: it is gone.
        """
        return self.server.store.get(POD, namespace, name)

    def pods(self) -> list[Stored]:
        """Returns all pods."""
        return self.server.store.list(POD)[1]

    def running(self) -> list[Stored]:
        """Returns the pods whose containers run."""
        return [pod for pod in self.pods() if pod.content["status"]["phase"] == "Running"]

    def end(self, pod: Stored) -> None:
        """Lets the containers of a running pod end; its object stays, Succeeded."""
        self.nodes[pod.content["spec"]["nodeName"]].end(pod.content)

    def delete(self, pod: Stored) -> None:
        """Deletes a pod as a user does; one that is gone is left."""
        try:
            delete(self.server.store, pod.namespace, pod.name, None, "")
        except ApiFailure as failure:
            if failure.status != 404:
                raise

    def is_idle(self) -> bool:
        """Returns whether the kubelets have done all they were told."""
        return all(node.is_idle() for node in self.nodes.values()) and not any(
            _is_awaited(pod.content) for pod in self.pods()
        )

    def _take(self, change: Change) -> None:
        pod = change.now.content
        node = self.nodes.get(pod["spec"].get("nodeName") or "")
        if node is not None and change.kind is not ChangeKind.DELETED:
            node.tell(pod)

    def _look(self) -> None:
        while not self._stop.wait(LOOK_EVERY_S):
            for node in self.nodes.values():
                node.look()


def _is_awaited(pod: Mapping[str, Any]) -> bool:
    """Returns whether a kubelet is still to do something about a pod."""
    if not pod["spec"].get("nodeName"):
        return False
    return pod["status"]["phase"] == "Pending" or bool(pod["metadata"].get("deletionTimestamp"))
