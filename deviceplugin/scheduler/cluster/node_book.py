"""What is known of one node: its inventory, and the pods that are bound to it or assumed on it.

A pod is in the book from the moment on at which it is bound or assumed until it has ended or is
deleted. While the inventory does not show it (`shown_pods`) its reservation is taken off what is
free: the one of its plan where this program bound it; else that of the GPUs chosen for it, where
they have room; else it is guessed when the pod is first looked at: what the planner says, since
agent and planner choose in the same order, or, where no GPU has room for it by what is known here,
its amounts on all that could hold some of it.

What the inventory shows without a name is matched with these pods (`unnamed`) and not taken off
twice. But while a pod's reservation is guessed the slice may be that pod's, so nothing is matched.

A pod may end before its agent has written that it has something, and its agent needs some seconds
to see that it ended. So the reservation of a bound pod that goes before it was shown *lingers*:
until the inventory shows the pod after all, or for `LINGERS_S`.

What plain init containers hold has no name in the inventory. A pod that asks for nothing else is
counted twice until the agent writes again, long after the kubelet has told of the pod.

Not synchronised: `cluster` is.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count

import msgspec

from deviceplugin.model.pod_requests import ContainerKind, PodRequest
from deviceplugin.pages.published import PublishedNode
from deviceplugin.scheduler.search.node_view import NodeView, Reservation, view_of
from deviceplugin.scheduler.search.plans import Planner

from .reserving import chosen_where_free, guessed_reservation, is_possible
from .shown_pods import (
    NOTHING_LEFT,
    LeftOver,
    PodName,
    Shown,
    held_by,
    is_shown,
    left_by_pod,
    shown_pods,
    still_left,
)
from .unnamed import Unnamed

#: An inventory that is written this long after a pod went and still has something under its name
#: has it for the next pod of that name: agents free what pods had within seconds. One that is
#: written this long after the kubelet told of a pod has what that pod holds.
WRITTEN_AFTER_S = 60.0
#: An agent looks every four seconds, frees what nobody ever showed after ten
#: (`podresources_listing`), and writes a change within two while the API server answers it.
LINGERS_S = 16.0


@dataclass(slots=True)
class BookedPod:
    """A pod of the node.

    Attributes:
        reservation: None until it was looked at.
        expires_at_s: when an assumption, or what lingers of a pod that has gone, ends, on the
            monotonic clock; None of a pod that is bound.
        acknowledged_at_s: since when the kubelet is known to have told of the pod, on that clock.
        is_unnamed: the inventory has what the pod holds, but not its name.
        is_guessed: nobody chose the GPUs of its reservation for it.
    """

    request: PodRequest
    reservation: Reservation | None = None
    expires_at_s: float | None = None
    acknowledged_at_s: float | None = None
    is_unnamed: bool = False
    is_guessed: bool = False


class NodeBook:
    """One node.

    Attributes:
        published: its inventory; None where there is none.
        pods: by UID.
        revision: of the view; another one whenever the view is another.
    """

    __slots__ = (
        "_left",
        "_lingering",
        "_revisions",
        "_shown",
        "_view",
        "name",
        "pods",
        "published",
        "revision",
    )

    def __init__(self, name: str, revisions: "count[int]") -> None:
        """Knows nothing yet.

        Args:
            revisions: gives each number once, over all nodes.
        """
        self.name = name
        self.published: PublishedNode | None = None
        self.pods: dict[str, BookedPod] = {}
        self.revision = next(revisions)
        self._revisions = revisions
        self._shown: dict[PodName, Shown] | None = None
        self._left: dict[PodName, LeftOver] = {}
        self._lingering: list[BookedPod] = []
        #: The last one, and whether it is of the present.
        self._view: tuple[NodeView | None, bool] = (None, False)

    @property
    def is_idle(self) -> bool:
        """Nothing is known of the node any more."""
        return self.published is None and not self.pods and not self._lingering

    def publish(self, published: PublishedNode | None, now_s: float, is_written: bool) -> None:
        """Takes an inventory; None where there is none any more.

        Args:
            is_written: just now; else nobody knows when.
        """
        before = self._index()
        is_same = published == self.published
        if not is_same:
            self.published, self._shown = published, None
        after = self._index()
        left: dict[PodName, LeftOver] = {}
        for name, each in self._left.items():
            rest = still_left(each, before.get(name), after.get(name))
            if rest is not None and not (is_written and now_s - rest.since_s >= WRITTEN_AFTER_S):
                left[name] = rest
        if not is_same or left != self._left:
            self._left = left
            self.outdate()
        self._settle_lingering(now_s)
        if is_written and published is not None:
            self._settle_unnamed(now_s)

    def _settle_unnamed(self, now_s: float) -> None:
        """Finds pods that have something in plain init containers alone, which are never named."""
        for pod in self.pods.values():
            since_s = pod.acknowledged_at_s
            if (
                since_s is not None
                and now_s - since_s >= WRITTEN_AFTER_S
                and not pod.is_unnamed
                and all(each.kind is ContainerKind.INIT for each in pod.request.containers)
            ):
                pod.is_unnamed = True
                self.outdate()

    def _settle_lingering(self, now_s: float) -> None:
        """Forgets what lingers of pods that the inventory shows now; that is left over."""
        taken = {_name(pod) for pod in self.pods.values()}  # nobody can tell whose their slices are
        shown = [
            pod for pod in self._lingering if _name(pod) not in taken and self.shows(pod.request)
        ]
        for pod in shown:
            self._left[_name(pod)] = left_by_pod(self._index().get(_name(pod)), now_s)
        self._keep_lingering(pod for pod in self._lingering if pod not in shown)

    def end_lingering(self, now_s: float) -> bool:
        """Forgets what lingers for long; returns whether anything did."""
        return self._keep_lingering(
            pod for pod in self._lingering if pod.expires_at_s is None or pod.expires_at_s > now_s
        )

    def _keep_lingering(self, kept: Iterable[BookedPod]) -> bool:
        before, self._lingering = self._lingering, list(kept)
        if len(before) == len(self._lingering):
            return False
        self.outdate()
        return True

    def remove(self, uid: str, now_s: float) -> None:
        """Forgets a pod; what the inventory shows under its name stays taken."""
        pod = self.pods[uid]
        is_counted = pod.is_unnamed or self.shows(pod.request)
        if pod.expires_at_s is None and not is_counted:
            pod.expires_at_s = now_s + LINGERS_S
            self._lingering.append(pod)
        del self.pods[uid]
        name = pod.request.namespace, pod.request.name
        left = left_by_pod(self._index().get(name), now_s)
        if left is not NOTHING_LEFT:
            self._left[name] = left
        self.outdate()

    def outdate(self) -> None:
        """Says that pods or inventory have changed since the last view."""
        self._view = (self._view[0], False)

    def view(self, planner: Planner) -> NodeView | None:
        """Returns what is free of the node; None without an inventory."""
        view, is_present = self._view
        if not is_present and self.published is not None:
            found = view_of(self.name, self.published, self._reservations(self.published, planner))
            if found != view:
                view, self.revision = found, next(self._revisions)
            self._view = (view, True)
        return view if self.published is not None else None

    def view_without(self, uids: Iterable[str], planner: Planner) -> NodeView | None:
        """Returns what would be free if some pods had gone; None without an inventory."""
        if self.published is None:
            return None
        gone = {uid: self.pods[uid] for uid in uids if uid in self.pods}
        self._reservations(self.published, planner)
        slices, devices = set[str](), dict[str, int]()
        for pod in gone.values():
            shown, left = self._of(pod.request)
            slices.update(each.id for each in shown.slices if each.id not in left.slices)
            for resource, number in held_by(shown, left).devices.items():
                devices[resource] = devices.get(resource, 0) + number
        published = msgspec.structs.replace(
            self.published,
            slices=tuple(each for each in self.published.slices if each.id not in slices),
            resources=tuple(
                msgspec.structs.replace(each, held=max(0, each.held - devices.get(each.name, 0)))
                for each in self.published.resources
            ),
        )
        waiting = (
            pod
            for pod in (
                *(pod for uid, pod in self.pods.items() if uid not in gone),
                *self._lingering,
            )
            if not self._is_counted(pod)
        )
        return view_of(self.name, published, _taken(published, waiting))

    def held(self, uid: str, planner: Planner) -> Reservation:
        """Returns what a pod takes of the node."""
        pod = self.pods[uid]
        if self.published is not None:
            if self.shows(pod.request):
                return held_by(*self._of(pod.request))
            if pod.reservation is None:
                self._reservations(self.published, planner)
        return pod.reservation or Reservation()

    def _is_counted(self, pod: BookedPod) -> bool:
        """Returns whether a pod needs no reservation: what it has is in the inventory.

        What is shown under a name may be of the pod before, as long as something lingers of that.
        """
        if any(_name(pod) == _name(each) for each in self._lingering):
            return False
        return pod.is_unnamed or self.shows(pod.request)

    def shows(self, request: PodRequest) -> bool:
        """Returns whether the inventory shows a pod."""
        if self.published is None:
            return False
        return is_shown(request, self.published.domain, *self._of(request))

    def _of(self, request: PodRequest) -> tuple[Shown, LeftOver]:
        name = request.namespace, request.name
        return self._index().get(name, Shown()), self._left.get(name, NOTHING_LEFT)

    def _index(self) -> dict[PodName, Shown]:
        if self._shown is None:
            self._shown = {} if self.published is None else shown_pods(self.published)
        return self._shown

    def _reservations(self, published: PublishedNode, planner: Planner) -> list[Reservation]:
        """Returns what pods take that are not shown, and makes reservations that are missing."""
        waiting = [
            pod for pod in (*self.pods.values(), *self._lingering) if not self._is_counted(pod)
        ]
        missing: list[BookedPod] = []
        unnamed = Unnamed(published)
        found: list[Reservation] = []
        for pod in waiting:
            if pod.reservation is not None and is_possible(published, pod.reservation):
                found.append(unnamed.take(pod.request, pod.reservation))
            else:
                missing.append(pod)
        for pod in sorted(missing, key=lambda each: (each.request.created_at, each.request.uid)):
            view = view_of(self.name, published, found)
            pod.reservation = chosen_where_free(view, published, pod.request, unnamed.rest_of)
            pod.is_guessed = pod.reservation is None
            if pod.reservation is None:
                pod.reservation = guessed_reservation(view, published, pod.request, planner)
            found.append(unnamed.take(pod.request, pod.reservation))
        return _taken(published, waiting)


def _taken(published: PublishedNode, pods: Iterable[BookedPod]) -> list[Reservation]:
    """Returns what the reservations of pods that are not shown take besides an inventory."""
    reserved = [(pod, pod.reservation) for pod in pods if pod.reservation is not None]
    if any(pod.is_guessed for pod, _ in reserved):
        return [reservation for _, reservation in reserved]
    unnamed = Unnamed(published)
    return [unnamed.take(pod.request, reservation) for pod, reservation in reserved]


def _name(pod: BookedPod) -> PodName:
    return pod.request.namespace, pod.request.name
