"""The pods that are bound to this node, followed through the API server.

`PodTable` keeps them in the order in which the kubelet is expected to admit them: as they were
bound, and those that one list brings by the time of their creation. It is safe to use from several
threads; `seen` gives an immutable state of it, made when it has changed.
"""

from collections.abc import Callable, Iterable

from deviceplugin import runtime
from deviceplugin.model.pod_requests import PodRequest
from deviceplugin.policy.pairing.bound_pods import BoundPods, PodName

from .api_client import ApiServer
from .list_watch import EventType, Follower
from .pod_wire import Pod, PodSpec, row_of, trimmed

PATH = "/api/v1/pods"
_HURRY_EVERY_S = 0.05


class PodTable:
    """Pods of one node."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._news = runtime.condition()
        self._names: dict[str, PodName] = {}  # by uid
        self._asking: dict[str, PodRequest] = {}
        self._seen = BoundPods(node)
        self._is_stale = False

    def replace(self, pods: Iterable[tuple[str, PodName, PodRequest | None]]) -> None:
        """Takes all pods there are, each with its uid; those that were known keep their order.

        Args:
            pods: None for the request of one that asks for nothing.
        """
        listed = {uid: (name, request) for uid, name, request in pods}
        with self._news:
            for uid in self._names.keys() - listed.keys():
                self._forget(uid)
            for uid, (name, request) in sorted(
                listed.items(), key=lambda each: each[1][1].created_at if each[1][1] else 0.0
            ):
                self._enter(uid, name, request)
            self._changed()

    def put(self, uid: str, name: PodName, request: PodRequest | None) -> None:
        """Takes one pod that was bound, or has changed."""
        with self._news:
            self._enter(uid, name, request)
            self._changed()

    def remove(self, uid: str) -> None:
        """Forgets a pod."""
        with self._news:
            self._forget(uid)
            self._changed()

    def seen(self, is_current: bool) -> BoundPods:
        """Returns what is known now.

        Args:
            is_current: see `BoundPods`.
        """
        with self._news:
            return self._now(is_current)

    def wait(self, until: Callable[[BoundPods], bool], timeout_s: float) -> BoundPods:
        """Returns what is known as soon as it is enough, or the time is over."""
        deadline_s = runtime.monotonic() + timeout_s
        with self._news:
            while not until(now := self._now(True)):
                left_s = deadline_s - runtime.monotonic()
                if left_s <= 0:
                    break
                self._news.wait(left_s)
            return now

    def _enter(self, uid: str, name: PodName, request: PodRequest | None) -> None:
        self._names[uid] = name
        if request is None:
            self._asking.pop(uid, None)
        else:
            self._asking[uid] = request

    def _forget(self, uid: str) -> None:
        self._names.pop(uid, None)
        self._asking.pop(uid, None)

    def _changed(self) -> None:
        self._is_stale = True
        self._news.notify_all()

    def _now(self, is_current: bool) -> BoundPods:
        if self._is_stale or self._seen.is_current != is_current:
            self._seen = BoundPods(
                self._node,
                tuple(self._asking.values()),
                frozenset(self._names.values()),
                is_current,
            )
            self._is_stale = False
        return self._seen


class NodePods:
    """The API server's word on the pods of one node.

    Attributes:
        beat: of the thread that follows them.
    """

    def __init__(self, api: ApiServer, node: str, domain: str) -> None:
        """Follows nothing yet.

        Args:
            domain: of the resources.
        """
        self._table, self._domain = PodTable(node), domain
        self._follower = Follower(
            api,
            PATH,
            {"fieldSelector": f"spec.nodeName={node}"},
            Pod,
            self._listed,
            self._told,
            "node-pods",
            self._trimmed,
        )
        self.beat = self._follower.beat

    def start(self) -> None:
        """Follows them from now on."""
        self._follower.start()

    def stop(self) -> None:
        """Ends it."""
        self._follower.stop()

    @property
    def problem(self) -> str:
        """Why the pods are not followed now; empty while they are."""
        return self._follower.problem

    def seen(self) -> BoundPods:
        """Returns what is known now."""
        return self._table.seen(self._follower.is_current)

    def wait(self, until: Callable[[BoundPods], bool], timeout_s: float) -> BoundPods:
        """Returns what is known as soon as it is enough, or the time is over.

        A watch that has failed is tried again meanwhile.
        """
        deadline_s = runtime.monotonic() + timeout_s
        while True:
            self._follower.hurry()
            left_s = deadline_s - runtime.monotonic()
            known = self._table.wait(until, min(left_s, _HURRY_EVERY_S))
            if left_s <= _HURRY_EVERY_S or until(known):
                return known

    def hurry(self) -> None:
        """Tries at once to follow them again, where that has failed."""
        self._follower.hurry()

    def _trimmed(self, pod: Pod) -> Pod:
        kept = trimmed(pod, self._domain)
        if kept is None:  # its name counts
            pod.spec = PodSpec(node_name=pod.spec.node_name)
            pod.metadata.annotations = None
        return pod

    def _listed(self, pods: list[Pod]) -> None:
        self._table.replace(row_of(pod, self._domain) for pod in pods)

    def _told(self, kind: EventType, pod: Pod) -> None:
        if kind is EventType.DELETED:
            self._table.remove(pod.metadata.uid)
        else:
            self._table.put(*row_of(pod, self._domain))
