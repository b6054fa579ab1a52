"""The cluster's state fed by two watches: the agents' inventories and the pods that are bound.

Pods that are not bound yet are not followed: the scheduler brings them along when it asks. While a
watch is broken what was known stays, and no assumption expires, since its binding may be there
untold; `is_current` says so.
"""

import logging
import threading
import time
from typing import Any

import msgspec

from deviceplugin.kube.api_client import ApiServer
from deviceplugin.kube.list_watch import EventType, Follower
from deviceplugin.kube.pod_wire import Pod, pod_request, trimmed
from deviceplugin.log import event
from deviceplugin.model.pod_requests import PodRequest
from deviceplugin.pages.published import (
    COMPONENT,
    COMPONENT_LABEL,
    INVENTORY_KEY,
    PublishedNode,
    decode,
)
from libvgpu.errors import VgpuError

from .cluster import Cluster

#: Pods that hold something or are about to.
POD_SELECTOR = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"
#: A pod may end before its agent has written what it has, and a program that begins then hears of
#: neither. An agent writes a change within this time while the API server answers it.
SETTLES_S = 2.0
_EXPIRE_EVERY_S = 1.0
_MOST_TOLD = 1000


class InventoryMetadata(msgspec.Struct):
    """Whose inventory it is, and where it is written."""

    name: str
    annotations: dict[str, str] | None = None


class InventoryLease(msgspec.Struct):
    """The Lease that an agent writes its inventory on."""

    metadata: InventoryMetadata


class ClusterFollower:
    """Keeps a `Cluster` up to date."""

    def __init__(
        self,
        api: ApiServer,
        cluster: Cluster,
        domain: str,
        namespace: str,
        pod_selector: str = "",
    ) -> None:
        """Begins with `start`.

        Args:
            domain: of the resources.
            namespace: of the agents.
            pod_selector: labels of the pods that are followed; empty for all.
        """
        self._cluster, self._domain = cluster, domain
        self._told: set[tuple[str, str]] = set()
        self._listed_s: float | None = None
        self._stopping = threading.Event()
        self.inventories = Follower(
            api,
            f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases",
            {"labelSelector": f"{COMPONENT_LABEL}={COMPONENT}"},
            InventoryLease,
            self._list_inventories,
            self._take_inventory,
            "inventories",
        )
        self.pods = Follower(
            api,
            "/api/v1/pods",
            {"fieldSelector": POD_SELECTOR}
            | ({"labelSelector": pod_selector} if pod_selector else {}),
            Pod,
            self._list_pods,
            self._take_pod,
            "pods",
            trim=lambda pod: trimmed(pod, domain),
        )
        self._expiry = threading.Thread(target=self._expire, name="assumptions", daemon=True)

    def start(self) -> None:
        """Begins to follow."""
        self.inventories.start()
        self.pods.start()
        self._expiry.start()

    def stop(self) -> None:
        """Ends it."""
        self._stopping.set()
        self.inventories.stop()
        self.pods.stop()

    def wait_synced(self, timeout_s: float) -> bool:
        """Waits until nodes and pods were listed once; returns whether they were."""
        end_s = time.monotonic() + timeout_s
        return all(
            each.wait_synced(max(0.0, end_s - time.monotonic()))
            for each in (self.inventories, self.pods)
        )

    @property
    def settles_in_s(self) -> float:
        """In how many seconds all is known that pods have which ended before the first list."""
        listed_s = self._listed_s
        return SETTLES_S if listed_s is None else max(0.0, listed_s + SETTLES_S - time.monotonic())

    @property
    def is_current(self) -> bool:
        """What is known is of the present."""
        return self.inventories.is_current and self.pods.is_current

    @property
    def problem(self) -> str:
        """Why it is not; empty where nothing is wrong, also before the first list."""
        return self.inventories.problem or self.pods.problem

    def _list_inventories(self, leases: list[InventoryLease]) -> None:
        found = {each.metadata.name: self._inventory(each) for each in leases}
        self._cluster.set_nodes({name: each for name, each in found.items() if each is not None})

    def _take_inventory(self, kind: EventType, lease: InventoryLease) -> None:
        gone = kind is EventType.DELETED
        self._cluster.set_node(lease.metadata.name, None if gone else self._inventory(lease))

    def _inventory(self, lease: InventoryLease) -> PublishedNode | None:
        text = (lease.metadata.annotations or {}).get(f"{self._domain}/{INVENTORY_KEY}")
        if text is None:
            return None
        found = decode(text)
        if found is None:
            self._tell(
                ("inventory", lease.metadata.name),
                "the inventory of a node is malformed or of a newer release",
                node=lease.metadata.name,
            )
        return found

    def _list_pods(self, pods: list[Pod]) -> None:
        self._cluster.set_pods(
            request for each in pods if (request := self._request(each)) is not None
        )
        if self._listed_s is None:
            self._listed_s = time.monotonic()

    def _take_pod(self, kind: EventType, pod: Pod) -> None:
        if kind is EventType.DELETED:
            self._cluster.remove_pod(pod.metadata.uid)
        elif (request := self._request(pod)) is not None:
            self._cluster.set_pod(request)

    def _request(self, pod: Pod) -> PodRequest | None:
        try:
            return pod_request(pod, self._domain)
        except VgpuError as error:
            self._tell(("pod", pod.metadata.uid), "a pod is ignored", reason=error.message)
            return None

    def _tell(self, key: tuple[str, str], message: str, **fields: Any) -> None:
        if key not in self._told and len(self._told) < _MOST_TOLD:
            self._told.add(key)
            event(logging.WARNING, message, **fields)

    def _expire(self) -> None:
        while not self._stopping.wait(_EXPIRE_EVERY_S):
            if not self.is_current:
                continue
            for request in self._cluster.expire(time.monotonic()):
                event(
                    logging.WARNING,
                    "a pod was never reported as bound; its GPUs are free again",
                    pod=request,
                    uid=request.uid,
                )
