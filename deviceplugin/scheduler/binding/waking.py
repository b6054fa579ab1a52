"""Has kube-scheduler try again the pods that were refused, once there is room for one of them.

kube-scheduler looks at a pod again when something happens that it knows of: a pod ends, a Node
changes. A slice is given back a second or two after its pod has gone, which it does not see; the
pod that waits for it would stay so until it is looked at anyway, after five minutes. So the replica
that refused a pod plans it again on every node that has changed since, and where it fits makes
something happen: a CSIStorageCapacity in its own namespace, of a storage class that nobody has. Of
what kube-scheduler retries a pod for that an extender has refused, that is the kind of object that
lies in a namespace, so no right over the cluster is needed. The one made before is deleted.

`refused` and `changed` may be called by any thread and do not wait; the rest is for the thread
alone. No more than `MOST_REFUSED` pods are kept; a pod that is refused again comes in again.
"""

import logging
import threading
import time
from collections.abc import Callable
from http import HTTPStatus

from deviceplugin.kube.api_client import ApiRefused, ApiServer, ApiUnreachable
from deviceplugin.kube.raw_calls import call
from deviceplugin.log import event
from deviceplugin.model.pod_requests import PodRequest
from deviceplugin.scheduler.search.node_view import NodeView
from deviceplugin.scheduler.search.plans import Plan, Refusal
from libvgpu.errors import VgpuError

NAME = "vgpu-wake-up"
MOST_REFUSED = 256
#: As long as kube-scheduler leaves a pod alone.
KEPT_S = 300.0
#: A node that changed while a pod was judged counts as changed since.
_LOOK_BACK_S = 2.0
_LOOK_EVERY_S, _LEAST_BETWEEN_S = 0.25, 1.0


class Waker:
    """What was refused, and which nodes have changed."""

    def __init__(
        self,
        view: Callable[[str], tuple[int, NodeView] | None],
        planner: Callable[[NodeView, PodRequest], Plan | Refusal],
        wake: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Knows of nothing yet.

        Args:
            view: returns what is free of a node, None where it has no inventory.
            planner: says where on a node a pod would be.
            wake: has kube-scheduler try again.
            clock: never goes back.
        """
        self._view, self._planner, self._wake, self._clock = view, planner, wake, clock
        self._lock = threading.Lock()
        self._refused: dict[str, tuple[PodRequest, float]] = {}
        self._changed: dict[str, float] = {}
        self._woke_at_s = self._looked_at_s = float("-inf")
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="waking", daemon=True)

    def start(self) -> None:
        """Begins to look."""
        self._thread.start()

    def stop(self) -> None:
        """Ends."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def refused(self, request: PodRequest) -> None:
        """Notes a pod that fits no node now and may fit one later."""
        with self._lock:
            self._refused.pop(request.uid, None)
            self._refused[request.uid] = request, self._clock()
            if len(self._refused) > MOST_REFUSED:
                del self._refused[next(iter(self._refused))]

    def changed(self, node: str) -> None:
        """Notes that something of a node is other than it was."""
        with self._lock:
            self._changed[node] = self._clock()

    def look(self) -> bool:
        """Wakes kube-scheduler if a pod that was refused would fit; returns whether it did."""
        now_s = self._clock()
        if now_s - self._woke_at_s < _LEAST_BETWEEN_S:
            return False
        with self._lock:
            self._refused = {
                uid: each for uid, each in self._refused.items() if now_s - each[1] < KEPT_S
            }
            self._changed = {
                node: at_s
                for node, at_s in self._changed.items()
                if at_s > self._looked_at_s or now_s - at_s < _LOOK_BACK_S
            }
            refused, changed = dict(self._refused), dict(self._changed)
            self._looked_at_s = now_s
        fitting = [
            uid
            for uid, (request, at_s) in refused.items()
            if any(
                changed_s >= at_s - _LOOK_BACK_S and self._fits(node, request)
                for node, changed_s in changed.items()
            )
        ]
        if not fitting:
            return False
        self._woke_at_s = now_s
        self._wake()
        with self._lock:
            for uid in fitting:
                if self._refused.get(uid) == refused[uid]:  # else it was refused once more
                    del self._refused[uid]
        return True

    def _fits(self, node: str, request: PodRequest) -> bool:
        found = self._view(node)
        try:
            return found is not None and isinstance(self._planner(found[1], request), Plan)
        except VgpuError:
            return False

    def _run(self) -> None:
        said = ""
        while not self._stopping.wait(_LOOK_EVERY_S):
            try:
                self.look()
                said = ""
            except (ApiRefused, ApiUnreachable) as error:
                if error.message != said:
                    event(
                        logging.WARNING,
                        "pods that wait for room are not tried again at once",
                        reason=error.message,
                    )
                said = error.message


def wake_up(api: ApiServer, namespace: str) -> None:
    """Makes the object that kube-scheduler takes for something that happened.

    Raises:
        ApiUnreachable: there was no answer.
        ApiRefused: it may not be made.
    """
    folder = f"/apis/storage.k8s.io/v1/namespaces/{namespace}/csistoragecapacities"
    try:
        call(api, "DELETE", f"{folder}/{NAME}")
    except ApiRefused as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
    try:
        call(
            api,
            "POST",
            folder,
            {
                "apiVersion": "storage.k8s.io/v1",
                "kind": "CSIStorageCapacity",
                "metadata": {"name": NAME},
                "storageClassName": NAME,
            },
        )
    except ApiRefused as error:
        if error.status != HTTPStatus.CONFLICT:  # another replica was quicker
            raise
