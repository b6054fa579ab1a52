"""A simulated kube-scheduler: one pod after the other, bindings next to it.

As the real one with an extender: nodes whose sums hold the pod, then the extender's filter and
prioritize, the best node (of equal ones the first by name), then its bind. Without an extender:
the sums alone, the least allocated node, and a plain Binding: the default scheduler. What cannot be
placed is tried again after a pause, and when something has ended. It is not kube-scheduler.
"""

import heapq
import threading
import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from .extender_client import ExtenderClient, ExtenderFailed
from .kinds import POD
from .node_sums import NodeSums
from .object_store import Change, ChangeKind, ObjectStore
from .pod_calls import bind
from .pod_shapes import Amounts, requests_of
from .refusals import ApiFailure


class SimulatedScheduler:
    """Places the pods of a store that have no node.

    Attributes:
        counted: ``bound``, ``no sum`` (no node's sums hold it), ``no node`` (the extender has
            none), ``failed`` (the extender failed), ``not bound``.
        reasons: why nodes were refused, for the last pod that none was left for.
    """

    def __init__(
        self,
        store: ObjectStore,
        allocatable: Mapping[str, Amounts],
        extender: ExtenderClient | None,
        binders: int = 8,
        pause_s: float = 0.5,
    ) -> None:
        """Places nothing yet.

        Args:
            allocatable: by node and resource.
            extender: None for the default scheduler.
            pause_s: after which a pod that could not be placed is tried again.
        """
        self.counted: Counter[str] = Counter()
        self.reasons: Mapping[str, str] = {}
        self.sums = NodeSums(store, allocatable)
        self._store, self._extender, self._pause_s = store, extender, pause_s
        self._binders = ThreadPoolExecutor(binders, thread_name_prefix="binder")
        self._news = threading.Condition()
        self._due: list[tuple[float, int, Any]] = []  # when, which, pod
        self._made = 0
        self._waiting: set[str] = set()  # by uid, of those in `_due` and those under way
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="scheduler", daemon=True)
        with store.lock:
            version, pods = store.list(POD)
            for each in pods:
                self._note(each.content)
            store.subscribe(POD, version, self._take)

    def start(self) -> None:
        """Begins."""
        self._thread.start()

    def stop(self) -> None:
        """Ends; bindings under way are waited for."""
        self._store.unsubscribe(POD, self._take)
        with self._news:
            self._stopping = True
            self._news.notify()
        self._thread.join()
        self._binders.shutdown()

    @property
    def pending(self) -> int:
        """How many pods have no node."""
        return len(self._waiting)

    def _take(self, change: Change) -> None:
        if change.kind is ChangeKind.ADDED:
            self._note(change.now.content)
        elif change.kind is ChangeKind.DELETED:
            with self._news:
                self._waiting.discard(change.now.content["metadata"]["uid"])

    def _note(self, pod: Mapping[str, Any]) -> None:
        if not pod["spec"].get("nodeName") and pod["status"]["phase"] == "Pending":
            with self._news:
                self._waiting.add(pod["metadata"]["uid"])
                self._put(pod, 0.0)

    def _put(self, pod: Mapping[str, Any], after_s: float) -> None:
        self._made += 1
        heapq.heappush(self._due, (time.monotonic() + after_s, self._made, pod))
        self._news.notify()

    def _again(self, pod: Mapping[str, Any]) -> None:
        with self._news:
            if pod["metadata"]["uid"] in self._waiting:
                self._put(pod, self._pause_s)

    def _run(self) -> None:
        while True:
            with self._news:
                while not self._stopping and (wait_s := self._wait_s()) > 0:
                    self._news.wait(wait_s)
                if self._stopping:
                    return
                pod = heapq.heappop(self._due)[2]
                if pod["metadata"]["uid"] not in self._waiting:
                    continue
            self._place(pod)

    def _wait_s(self) -> float:
        return self._due[0][0] - time.monotonic() if self._due else 3600.0

    def _place(self, pod: Mapping[str, Any]) -> None:
        requests = requests_of(pod)
        nodes = self.sums.fitting(requests)
        if not nodes:
            self.counted["no sum"] += 1
            return self._again(pod)
        try:
            node = self._best(pod, nodes, requests)
        except ExtenderFailed as error:
            self.counted["failed"] += 1
            self.reasons = {"": str(error)}
            return self._again(pod)
        if node is None:
            self.counted["no node"] += 1
            return self._again(pod)
        self.sums.assume(pod["metadata"]["uid"], node, requests)
        self._binders.submit(self._bind, pod, node)
        return None

    def _best(self, pod: Mapping[str, Any], nodes: list[str], requests: Amounts) -> str | None:
        if self._extender is None:
            return self.sums.least_allocated(nodes, requests)
        found = self._extender.filter(pod, nodes)
        if not found.passed:
            self.reasons = {**found.failed, **found.never}
            return None
        if len(found.passed) == 1:
            return found.passed[0]
        scores = self._extender.prioritize(pod, found.passed)
        return max(found.passed, key=lambda name: scores.get(name, 0))

    def _bind(self, pod: Mapping[str, Any], node: str) -> None:
        metadata = pod["metadata"]
        try:
            if self._extender is not None:
                self._extender.bind(pod, node)
            else:
                bind(
                    self._store,
                    metadata["namespace"],
                    metadata["name"],
                    {"metadata": {"uid": metadata["uid"]}, "target": {"name": node}},
                )
        except (ExtenderFailed, ApiFailure) as error:
            self._not_bound(pod, str(error))
        else:
            self._is_bound(metadata["uid"])

    def _not_bound(self, pod: Mapping[str, Any], reason: str) -> None:
        """Tries again, unless the answer was lost and the pod is bound."""
        metadata = pod["metadata"]
        try:
            now = self._store.get(POD, metadata["namespace"], metadata["name"]).content
        except ApiFailure:
            now = {"metadata": {"uid": ""}, "spec": {}}
        if now["metadata"]["uid"] == metadata["uid"] and now["spec"].get("nodeName"):
            return self._is_bound(metadata["uid"])
        self.sums.forget(metadata["uid"])
        self.counted["not bound"] += 1
        self.reasons = {"": reason}
        return self._again(pod)

    def _is_bound(self, uid: str) -> None:
        with self._news:
            self._waiting.discard(uid)
            self.counted["bound"] += 1
