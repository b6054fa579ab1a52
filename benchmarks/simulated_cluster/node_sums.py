"""What kube-scheduler itself knows of extended resources: sums over each node, and no GPUs.

Kept up to date by the store's changes; one lock.
"""

import threading
from collections.abc import Iterable, Mapping
from typing import Any

from .kinds import POD
from .object_store import Change, ChangeKind, ObjectStore
from .pod_shapes import Amounts, requests_of


class NodeSums:
    """Allocatable and requested amounts by node."""

    def __init__(self, store: ObjectStore, allocatable: Mapping[str, Amounts]) -> None:
        """Follows the store from now on.

        Args:
            allocatable: by node and resource.
        """
        self.allocatable = allocatable
        self._lock = threading.Lock()
        self._requested: dict[str, dict[str, int]] = {name: {} for name in allocatable}
        self._pods: dict[str, tuple[str, Amounts]] = {}
        with store.lock:
            version, pods = store.list(POD)
            for pod in pods:
                self._note(pod.content, is_gone=False)
            store.subscribe(POD, version, self._take)

    def fitting(self, requests: Amounts) -> list[str]:
        """Returns the nodes whose sums hold a pod."""
        with self._lock:
            return [
                name
                for name, has in self.allocatable.items()
                if all(
                    self._requested[name].get(resource, 0) + count <= has.get(resource, 0)
                    for resource, count in requests.items()
                )
            ]

    def least_allocated(self, names: Iterable[str], requests: Amounts) -> str:
        """Returns the node of which the smallest part is requested, of what the pod asks for."""
        with self._lock:
            return min(
                names,
                key=lambda name: sum(
                    self._requested[name].get(resource, 0) / self.allocatable[name][resource]
                    for resource in requests
                ),
            )

    def assume(self, uid: str, node: str, requests: Amounts) -> None:
        """Counts a pod that is about to be bound."""
        with self._lock:
            self._set(uid, (node, requests))

    def forget(self, uid: str) -> None:
        """Counts a pod no more."""
        with self._lock:
            self._set(uid, None)

    def _take(self, change: Change) -> None:
        self._note(change.now.content, change.kind is ChangeKind.DELETED)

    def _note(self, pod: Mapping[str, Any], is_gone: bool) -> None:
        uid, node = pod["metadata"]["uid"], pod["spec"].get("nodeName")
        has_ended = is_gone or pod["status"]["phase"] in ("Succeeded", "Failed")
        with self._lock:
            if has_ended:
                self._set(uid, None)
            elif node in self._requested:
                known = self._pods.get(uid)
                if known is None or known[0] != node:
                    self._set(uid, (node, requests_of(pod)))

    def _set(self, uid: str, pod: tuple[str, Amounts] | None) -> None:
        before = self._pods.pop(uid, None)
        for each, sign in ((before, -1), (pod, 1)):
            if each is not None:
                sums = self._requested[each[0]]
                for resource, count in each[1].items():
                    sums[resource] = sums.get(resource, 0) + sign * count
        if pod is not None:
            self._pods[uid] = pod
