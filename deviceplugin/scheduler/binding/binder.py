"""Binds pods: plans again from the newest state, promises the room, tells the API server.

Plan and promise are made under the cluster's lock, so of any number of binds at one time none gets
what another was promised; the call to the API server is made outside of it. One Binding carries
node and chosen GPUs, which the API server writes into the pod together, for the pod with this very
UID and only where it is bound to no node. What a call that failed has done:

* Nothing of it was done, or it was refused: the promise is taken back.
* Its outcome is not known (no answer in time): the promise stays until the watch tells that the pod
  is bound, or until it expires. Until then the pod can be bound to that node only.
* The pod is bound already (409): where to is read; to the same node is as well as done.

A program that has just begun does not know what pods had that ended a moment before, and a binding
of the program before it may still be under way. So its first binds promise at once, wait until that
is known, and plan again where there is no room any more.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from http import HTTPStatus
from urllib.parse import quote

import msgspec

from deviceplugin.kube.api_client import ApiRefused, ApiServer, ApiUnreachable
from deviceplugin.kube.pod_wire import Pod, pod_request
from deviceplugin.kube.raw_calls import ApiNotReached, call
from deviceplugin.model.chosen_gpus import CHOSEN_GPUS_KEY, ChosenGpus
from deviceplugin.model.pod_requests import PodRequest
from deviceplugin.scheduler.cluster.cluster import Cluster
from deviceplugin.scheduler.search.node_view import NodeView, has_room
from deviceplugin.scheduler.search.plans import Plan, Planner
from libvgpu.decoding import json_decoder
from libvgpu.errors import VgpuError

RefusalOf = Callable[[PodRequest, NodeView, Plan], str | None]
#: Pods that were asked about and may be bound soon.
_MOST_REMEMBERED = 10_000
_POD = json_decoder(Pod)


class BindOutcome(StrEnum):
    """Why a pod was not bound."""

    NOT_NOW = "not-now"  # this replica may not, or does not know the present
    NO_ROOM = "no-room"
    GONE = "gone"
    CONFLICT = "conflict"
    REFUSED = "refused"
    NOT_REACHED = "not-reached"
    UNKNOWN = "unknown"


class BindFailed(VgpuError):  # noqa: N818 - what the scheduler is told
    """A pod was not bound, or it is not known whether it was.

    Attributes:
        outcome: which it is.
    """

    def __init__(self, outcome: BindOutcome, message: str) -> None:
        super().__init__(message)
        self.outcome = outcome


class Binder:
    """Binds; safe to use from several threads."""

    def __init__(
        self,
        api: ApiServer,
        cluster: Cluster,
        planner: Planner,
        domain: str,
        obstacle: Callable[[], str],
        refusal: RefusalOf = lambda request, view, plan: None,
        clock: Callable[[], float] = time.monotonic,
        settles_in_s: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """Binds nothing yet.

        Args:
            planner: called with the cluster's lock held.
            domain: of the resources.
            obstacle: says why this replica may bind nothing now, as that it does not lead; empty
                where it may. Called with the cluster's lock held.
            refusal: says why a pod may not have what a plan takes, as for a quota; None where it
                may. Called with the cluster's lock held.
            clock: never goes back.
            settles_in_s: says how long binds must wait, in seconds, since this program has begun.
        """
        self._api, self._cluster, self._planner, self._domain = api, cluster, planner, domain
        self._obstacle, self._refusal, self._clock = obstacle, refusal, clock
        self._settles_in_s = settles_in_s
        self._remembered: OrderedDict[str, PodRequest] = OrderedDict()
        self._under_way: set[str] = set()
        self._lock = threading.Lock()

    def remember(self, request: PodRequest) -> None:
        """Keeps what a pod asks for, which saves a call when it is bound."""
        with self._lock:
            self._remembered[request.uid] = request
            self._remembered.move_to_end(request.uid)
            if len(self._remembered) > _MOST_REMEMBERED:
                self._remembered.popitem(last=False)

    def bind(self, namespace: str, name: str, uid: str, node: str) -> None:
        """Binds a pod to a node; one that is bound to it already is as well.

        Raises:
            BindFailed: it is not bound, or perhaps not.
        """
        with self._lock:
            if uid in self._under_way:
                raise BindFailed(
                    BindOutcome.NOT_NOW, f"{namespace}/{name} is being bound by another call"
                )
            self._under_way.add(uid)
        try:
            request = self._request(namespace, name, uid)
            chosen = self._promised(request, node) if request is not None else None
            if request is not None and chosen is not None and (wait_s := self._settles_in_s()) > 0:
                time.sleep(wait_s)
                chosen = self._promised_again(request, node)
            if request is None or chosen is not None:
                self._tell(namespace, name, uid, node, chosen)
        finally:
            with self._lock:
                self._under_way.discard(uid)

    def _promised(self, request: PodRequest, node: str) -> ChosenGpus | None:
        """Returns the GPUs that a pod is promised from now on; None where it is bound already."""
        uid = request.uid
        with self._cluster.exclusively():
            self._look_for_obstacle()
            known = self._cluster.pod(uid)
            if known is not None and known[1] != node:
                raise BindFailed(
                    BindOutcome.CONFLICT,
                    f"{request} is bound to {known[1]}"
                    if not self._cluster.is_assumed(uid)
                    else f"whether {request} was bound to {known[1]} is not known yet",
                )
            if known is not None:
                return known[0].chosen if self._cluster.is_assumed(uid) else None
            found = self._cluster.view(node)
            return self._promise(request, node, found[1] if found is not None else None)

    def _promised_again(self, request: PodRequest, node: str) -> ChosenGpus | None:
        """Returns the GPUs that a pod is promised by what is known now: those of before where they
        have room, so that pods stay as close as they were put. None where it is bound already.
        """
        uid = request.uid
        with self._cluster.exclusively():
            promise = self._cluster.promised(uid)
            if promise is None:  # the watch told of it meanwhile
                return self._promised(request, node)
            view = self._cluster.view_without(node, [uid])
            obstacle = self._obstacle()
            if view is not None and not obstacle and has_room(view, promise[1]):
                return promise[0].chosen
            self._cluster.forget(uid)
            self._look_for_obstacle()
            return self._promise(request, node, view)

    def _look_for_obstacle(self) -> None:
        obstacle = self._obstacle()
        if obstacle:
            raise BindFailed(BindOutcome.NOT_NOW, f"no pod is bound now: {obstacle}")

    def _promise(self, request: PodRequest, node: str, view: NodeView | None) -> ChosenGpus:
        """Promises a pod a place in what is free of a node; called with the lock held."""
        if view is None:
            raise BindFailed(BindOutcome.NO_ROOM, f"{node} has no inventory of GPUs")
        try:
            plan = self._planner(view, request)
        except VgpuError as error:
            raise BindFailed(BindOutcome.REFUSED, error.message) from None
        if not isinstance(plan, Plan):
            raise BindFailed(
                BindOutcome.NO_ROOM, f"{node} has no room for {request} any more: {plan.reason}"
            )
        refusal = self._refusal(request, view, plan)
        if refusal:
            raise BindFailed(BindOutcome.NO_ROOM, refusal)
        chosen = ChosenGpus(node, dict(plan.chosen))
        bound = replace(request, node=node, chosen=chosen)
        self._cluster.assume(bound, node, plan, self._clock())
        return chosen

    def _tell(
        self, namespace: str, name: str, uid: str, node: str, chosen: ChosenGpus | None
    ) -> None:
        pod = f"{namespace}/{name}"
        annotations = {}
        if chosen is not None:
            annotations[f"{self._domain}/{CHOSEN_GPUS_KEY}"] = chosen.encoded()
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "uid": uid,
                "annotations": annotations,
            },
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        try:
            call(self._api, "POST", f"{_path(namespace, name)}/binding", body)
        except ApiNotReached as error:
            self._cluster.forget(uid)
            raise BindFailed(BindOutcome.NOT_REACHED, f"{pod}: {error.message}") from None
        except ApiUnreachable as error:
            raise BindFailed(
                BindOutcome.UNKNOWN,
                f"whether {pod} was bound to {node} is not known: {error.message}",
            ) from None
        except ApiRefused as error:
            self._refused(namespace, name, uid, node, error)

    def _refused(self, namespace: str, name: str, uid: str, node: str, error: ApiRefused) -> None:
        """Finds out what a refusal means; returns where the pod is bound to the node."""
        pod = f"{namespace}/{name}"
        if error.status == HTTPStatus.CONFLICT:
            found = self._read(namespace, name)
            if found is not None and found.metadata.uid == uid and found.spec.node_name == node:
                return  # by a call before whose answer was lost; the watch tells it, too
            self._cluster.forget(uid)
            is_there = found is not None and found.metadata.uid == uid
            where = f"bound to {found.spec.node_name}" if found and found.spec.node_name else ""
            raise BindFailed(
                BindOutcome.CONFLICT if is_there else BindOutcome.GONE,
                f"{pod} is {(is_there and where) or 'not to be bound'}: {error.message}",
            )
        self._cluster.forget(uid)
        if error.status == HTTPStatus.NOT_FOUND:
            raise BindFailed(BindOutcome.GONE, f"{pod} is gone: {error.message}")
        raise BindFailed(
            BindOutcome.REFUSED,
            f"the API server answers {error.status} to the binding of {pod}: {error.message}",
        )

    def _request(self, namespace: str, name: str, uid: str) -> PodRequest | None:
        """Returns what a pod asks for; None where that is nothing."""
        with self._lock:
            remembered = self._remembered.get(uid)
        if remembered is not None:
            return remembered
        pod = self._read(namespace, name)
        if pod is None or pod.metadata.uid != uid:
            raise BindFailed(
                BindOutcome.GONE, f"there is no pod {namespace}/{name} with UID {uid} any more"
            )
        try:
            return pod_request(pod, self._domain)
        except VgpuError as error:
            raise BindFailed(BindOutcome.REFUSED, error.message) from None

    def _read(self, namespace: str, name: str) -> Pod | None:
        """Returns a pod as the API server has it; None where there is none.

        Raises:
            BindFailed: nobody knows.
        """
        try:
            return _POD.decode(call(self._api, "GET", _path(namespace, name)))
        except ApiRefused as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return None
            raise BindFailed(
                BindOutcome.UNKNOWN, f"{namespace}/{name} cannot be read: {error.message}"
            ) from None
        except ApiUnreachable as error:
            raise BindFailed(
                BindOutcome.UNKNOWN, f"{namespace}/{name} cannot be read: {error.message}"
            ) from None
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise BindFailed(
                BindOutcome.UNKNOWN, f"{namespace}/{name} is malformed: {error}"
            ) from None


def _path(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(name, safe='')}"
