"""What is known of the cluster: nodes with their inventories, pods, and what was promised to whom.

All of it is in memory, made of what two watches tell (`follow`) and of what `binding` assumes. One
lock guards it; no call waits for anything else, and none costs more than the node that it is about.
An assumption ends after some time on the monotonic clock, or when the watch tells where the pod is.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count

from deviceplugin.model.pod_requests import PodRequest
from deviceplugin.pages.published import PublishedNode
from deviceplugin.scheduler.search.node_view import NodeView, Reservation
from deviceplugin.scheduler.search.plans import Plan, Planner
from deviceplugin.scheduler.search.preemption import Holder

from .namespace_usage import NamespaceUsage
from .node_book import BookedPod, NodeBook
from .quotas import Usage
from .shown_pods import PodName

ASSUMED_S = 60.0


class Cluster:
    """The state; safe to use from several threads."""

    def __init__(
        self,
        planner: Planner,
        assumed_s: float = ASSUMED_S,
        clock: Callable[[], float] = time.monotonic,
        changed: Callable[[str], None] = lambda node: None,
    ) -> None:
        """Knows nothing yet.

        Args:
            planner: says where on a node a pod would be; raises `VgpuError` for a pod that asks for
                what cannot be. Called with the lock held, so it must not call back.
            assumed_s: how long an assumption lasts.
            clock: never goes back.
            changed: told of a node of which something is other than it was; with the lock held.
        """
        self._planner, self._assumed_s, self._clock = planner, assumed_s, clock
        self._tell = changed
        self._lock = threading.RLock()
        self._revisions = count(1)
        self._nodes: dict[str, NodeBook] = {}
        #: The node of each pod, by UID.
        self._node_of: dict[str, NodeBook] = {}
        self._uid_of: dict[PodName, str] = {}
        self._assumed: set[str] = set()
        self._usage = NamespaceUsage(planner)

    @contextlib.contextmanager
    def exclusively(self) -> Iterator[None]:
        """Keeps all others out, so that what was looked at is still so when it is acted upon."""
        with self._lock:
            yield

    def set_node(self, name: str, published: PublishedNode | None) -> None:
        """Takes the inventory of a node, written just now; None where it has none any more."""
        self._set_node(name, published, is_written=True)

    def set_nodes(self, nodes: Mapping[str, PublishedNode]) -> None:
        """Takes all inventories there are."""
        with self._lock:
            for name in self._nodes.keys() - nodes.keys():
                self._set_node(name, None, is_written=False)
            for name, published in nodes.items():
                self._set_node(name, published, is_written=False)

    def set_pod(self, request: PodRequest) -> None:
        """Takes a pod as the API server has it now."""
        with self._lock:
            if request.is_ended:
                self._remove(request.uid)
            elif request.node:
                book = self._node_of.get(request.uid)
                if self._is_older(request):
                    return
                if book is None or book.name != request.node:
                    self._add(request, request.node, BookedPod(request))
                else:
                    pod = book.pods[request.uid]
                    pod.request, pod.expires_at_s = request, None
                self._assumed.discard(request.uid)
                pod = self._node_of[request.uid].pods[request.uid]
                if request.is_acknowledged and pod.acknowledged_at_s is None:
                    pod.acknowledged_at_s = self._clock()

    def set_pods(self, requests: Iterable[PodRequest]) -> None:
        """Takes all pods there are; assumptions of others stay."""
        with self._lock:
            present = {each.uid: each for each in requests if each.node and not each.is_ended}
            for uid in self._node_of.keys() - present.keys() - self._assumed:
                self._remove(uid)
            for request in present.values():
                self.set_pod(request)

    def remove_pod(self, uid: str) -> None:
        """Takes notice that a pod is deleted; one that is not known is none to forget."""
        with self._lock:
            self._remove(uid)

    def view(self, name: str) -> tuple[int, NodeView] | None:
        """Returns what is free of a node, and a number that is another whenever that is.

        None where the node has no inventory.
        """
        with self._lock:
            book = self._nodes.get(name)
            view = book.view(self._planner) if book is not None else None
            return (book.revision, view) if book is not None and view is not None else None

    def views(self, names: Iterable[str]) -> list[tuple[str, int, NodeView]]:
        """Returns name, number and view of those nodes that have an inventory, looked at together.

        For some hundred names: everybody else waits meanwhile.
        """
        with self._lock:
            nodes, planner = self._nodes, self._planner
            return [
                (name, book.revision, view)
                for name in names
                if (book := nodes.get(name)) is not None
                and (view := book.view(planner)) is not None
            ]

    def view_without(self, name: str, uids: Iterable[str]) -> NodeView | None:
        """Returns what would be free of a node if some of its pods had gone."""
        with self._lock:
            book = self._nodes.get(name)
            return book.view_without(uids, self._planner) if book is not None else None

    def assume(self, request: PodRequest, node: str, plan: Plan, now_s: float) -> None:
        """Promises a pod what a plan takes of a node, until the watch tells that it is bound.

        Args:
            plan: made of the present view, within `exclusively`.
            now_s: on the monotonic clock.
        """
        with self._lock:
            pod = BookedPod(request, plan.reservation, now_s + self._assumed_s)
            self._add(request, node, pod)
            self._assumed.add(request.uid)

    def forget(self, uid: str) -> None:
        """Takes an assumption back; a pod that the watch told of stays."""
        with self._lock:
            if uid in self._assumed:
                self._remove(uid)

    def expire(self, now_s: float) -> list[PodRequest]:
        """Takes back the assumptions whose time is over, and returns their pods.

        Also what lingers of pods that have gone.
        """
        with self._lock:
            over: list[PodRequest] = []
            for uid in list(self._assumed):
                pod = self._node_of[uid].pods[uid]
                if pod.expires_at_s is not None and pod.expires_at_s <= now_s:
                    over.append(pod.request)
                    self._remove(uid)
            for book in list(self._nodes.values()):
                if book.end_lingering(now_s):
                    self._changed(book)
            return over

    def pod(self, uid: str) -> tuple[PodRequest, str] | None:
        """Returns a pod that is bound or assumed, and its node."""
        with self._lock:
            book = self._node_of.get(uid)
            return (book.pods[uid].request, book.name) if book is not None else None

    def promised(self, uid: str) -> tuple[PodRequest, Reservation] | None:
        """Returns a pod that is promised something and not yet told as bound, and what that is."""
        with self._lock:
            if uid not in self._assumed:
                return None
            pod = self._node_of[uid].pods[uid]
            return pod.request, pod.reservation or Reservation()

    def is_assumed(self, uid: str) -> bool:
        """Returns whether a pod is promised something and not yet told as bound."""
        with self._lock:
            return uid in self._assumed

    @property
    def assumed_count(self) -> int:
        """How many pods are promised something and not yet told as bound."""
        with self._lock:
            return len(self._assumed)

    def is_known(self, node: str) -> bool:
        """Returns whether a node has an inventory."""
        with self._lock:
            return node in self._nodes and self._nodes[node].published is not None

    def nodes(self) -> list[str]:
        """Returns the names of the nodes with an inventory."""
        with self._lock:
            return [name for name, book in self._nodes.items() if book.published is not None]

    def holders(self, node: str) -> list[Holder]:
        """Returns the pods of a node, and what each takes of it."""
        with self._lock:
            book = self._nodes.get(node)
            if book is None:
                return []
            return [
                Holder(
                    uid,
                    pod.request.priority,
                    pod.request.created_at,
                    book.held(uid, self._planner),
                )
                for uid, pod in book.pods.items()
            ]

    def usage(self, namespace: str) -> Usage:
        """Returns what the pods of a namespace hold, and what is promised to them."""
        with self._lock:
            return self._usage.of(namespace)

    def _set_node(self, name: str, published: PublishedNode | None, is_written: bool) -> None:
        with self._lock:
            if published is None and name not in self._nodes:
                return
            book = self._book(name)
            book.publish(published, self._clock(), is_written)
            self._changed(book)

    def _book(self, name: str) -> NodeBook:
        found = self._nodes.get(name)
        if found is None:
            found = self._nodes[name] = NodeBook(name, self._revisions)
        return found

    def _add(self, request: PodRequest, node: str, pod: BookedPod) -> None:
        name = request.namespace, request.name
        self._remove(request.uid)
        # Of two pods of one name the one that was known before is gone, told or not.
        self._remove(self._uid_of.get(name, ""))
        book = self._book(node)
        book.pods[request.uid] = pod
        book.outdate()
        self._node_of[request.uid] = book
        self._uid_of[name] = request.uid
        self._changed(book)

    def _is_older(self, request: PodRequest) -> bool:
        """Returns whether a pod of its name is known that was made later: then it has gone."""
        uid = self._uid_of.get((request.namespace, request.name), request.uid)
        if uid == request.uid:
            return False
        return self._node_of[uid].pods[uid].request.created_at > request.created_at

    def _remove(self, uid: str) -> None:
        self._assumed.discard(uid)
        book = self._node_of.pop(uid, None)
        if book is None:
            return
        request = book.pods[uid].request
        name = request.namespace, request.name
        if self._uid_of.get(name) == uid:
            del self._uid_of[name]
        book.remove(uid, self._clock())
        self._changed(book)

    def _changed(self, book: NodeBook) -> None:
        self._usage.outdate(book)
        self._tell(book.name)
        if book.is_idle:
            del self._nodes[book.name]
