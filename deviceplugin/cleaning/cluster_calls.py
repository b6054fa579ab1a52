"""What the cleaning asks of the API server: which nodes and pods there are, and a pod on each node.

Errors are those of `kube.api_client`. What is not there any more is no error.
"""

import hashlib
import json
import uuid
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, TypeVar

from lightkube.models.core_v1 import EventSource, ObjectReference
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import Event

from deviceplugin.kube.api_client import ApiRefused, ApiServer
from deviceplugin.kube.object_pages import ObjectList
from deviceplugin.kube.raw_calls import call
from deviceplugin.model.notices import EventReason
from deviceplugin.pages.published import COMPONENT, COMPONENT_LABEL
from libvgpu.decoding import json_decoder

from .seen_pods import AGENT_PARTS, HOST_PART, Named, SeenPod, SeenPods

_INSTANCE_LABEL = "app.kubernetes.io/instance"
_COMPONENT = "vgpu-clean-hosts"
_MOST_TEXT = 1000
_NAMED = json_decoder(Named)

_T = TypeVar("_T")


class ClusterCalls:
    """Asks and changes the cluster for one release."""

    def __init__(
        self, api: ApiServer, release: str, domain: str, template: Mapping[str, Any], owner: str
    ) -> None:
        """Asks nothing yet.

        Args:
            template: of the pod that cleans a node.
            owner: JSON of an ownerReference, with which the pods go; empty for none.
        """
        self._api, self._release, self._domain = api, release, domain
        self._template, self._owner = template, owner

    def nodes(self, selector: str) -> set[str]:
        """Returns the nodes that may have files of ours: now selected, with an agent, or with what
        an agent published."""
        found = self._nodes(selector) | {each.metadata.name for each in self._leases()}
        return (found | set(self.look().agents)) & self._nodes("")

    def look(self) -> SeenPods:
        """Returns the pods that matter now."""
        seen = SeenPods({}, {}, {})
        for pod in self._list("/api/v1/pods", SeenPod, "", self._matters):
            part = self._part(pod)
            table = seen.agents if part in AGENT_PARTS else seen.needing
            table = seen.cleaning if part == HOST_PART else table
            assert isinstance(table, dict)
            kept = table.get(pod.spec.node_name)
            # Of pods that keep a node as it is, one that does not end is told rather.
            if kept is None or kept.metadata.deletion_timestamp:
                table[pod.spec.node_name] = pod
        return seen

    def others(self) -> str:
        """Returns the DaemonSet that Helm has not made for the release, empty where there is none.

        Who applies what `helm template` prints starts a hook of an uninstall without wanting one.
        """
        for part in AGENT_PARTS:
            try:
                found = call(self._api, "GET", self._daemon_set(part))
            except ApiRefused as error:
                if error.status != HTTPStatus.NOT_FOUND:
                    raise
                continue
            metadata = _NAMED.decode(found).metadata
            if metadata.annotations.get("meta.helm.sh/release-name") != self._release:
                return metadata.name
        return ""

    def end_agents(self) -> None:
        """Removes the DaemonSets, whose pods end then."""
        for part in AGENT_PARTS:
            self._delete(self._daemon_set(part))

    def start(self, node: str) -> None:
        """Makes the pod that cleans a node; one that is there stays."""
        pod = json.loads(json.dumps(self._template))
        pod["metadata"]["name"] = self._pod_name(node)
        if self._owner:
            pod["metadata"]["ownerReferences"] = [json.loads(self._owner)]
        pod["spec"]["nodeName"] = node  # no scheduler: also where the node is cordoned
        path = f"/api/v1/namespaces/{self._api.namespace}/pods"
        try:
            call(self._api, "POST", path, pod)
        except ApiRefused as error:
            if error.status != HTTPStatus.CONFLICT:
                raise

    def end(self, node: str) -> None:
        """Removes the pod that cleans a node."""
        path = f"/api/v1/namespaces/{self._api.namespace}/pods"
        self._delete(f"{path}/{self._pod_name(node)}")

    def forget(self, nodes: Iterable[str]) -> None:
        """Removes what the agents of nodes published."""
        there = {each.metadata.name for each in self._leases()}
        for node in there.intersection(nodes):
            self._delete(f"{self._leases_path()}/{node}")

    def tell(self, node: str, text: str) -> None:
        """Makes an Event of a node that was left alone."""
        now = datetime.now(UTC).replace(microsecond=0)
        self._api.create_event(
            Event(
                metadata=ObjectMeta(name=f"{node}.{uuid.uuid4().hex[:16]}", namespace="default"),
                involvedObject=ObjectReference(apiVersion="v1", kind="Node", name=node, uid=node),
                reason=EventReason.HOST_NOT_CLEANED.value,
                message=text[:_MOST_TEXT],
                type="Warning",
                source=EventSource(component=_COMPONENT),
                reportingComponent=_COMPONENT,
                reportingInstance=_COMPONENT,
                firstTimestamp=now,
                lastTimestamp=now,
                count=1,
            )
        )

    def _nodes(self, selector: str) -> set[str]:
        return {each.metadata.name for each in self._list("/api/v1/nodes", Named, selector)}

    def _matters(self, pod: SeenPod) -> SeenPod | None:
        if not pod.spec.node_name:
            return None
        if self._part(pod):
            return pod
        needs = pod.is_agent or pod.asks(self._domain)
        return pod if needs and not pod.has_ended else None

    def _part(self, pod: SeenPod) -> str:
        """Returns which part of our release a pod is, empty for others'."""
        labels = pod.metadata.labels
        ours = pod.metadata.namespace == self._api.namespace
        if not ours or labels.get(_INSTANCE_LABEL) != self._release:
            return ""
        part = labels.get(COMPONENT_LABEL, "")
        return part if part in (*AGENT_PARTS, HOST_PART) else ""

    def _pod_name(self, node: str) -> str:
        return f"{self._release}-{HOST_PART}-{hashlib.sha256(node.encode()).hexdigest()[:10]}"

    def _daemon_set(self, part: str) -> str:
        namespace = self._api.namespace
        return f"/apis/apps/v1/namespaces/{namespace}/daemonsets/{self._release}-{part}"

    def _leases_path(self) -> str:
        return f"/apis/coordination.k8s.io/v1/namespaces/{self._api.namespace}/leases"

    def _leases(self) -> list[Named]:
        return self._list(self._leases_path(), Named, f"{COMPONENT_LABEL}={COMPONENT}")

    def _list(
        self,
        path: str,
        kind: type[_T],
        selector: str,
        trim: Callable[[_T], _T | None] | None = None,
    ) -> list[_T]:
        params = {"labelSelector": selector} if selector else {}
        return ObjectList(self._api, path, params, kind, trim, _malformed).read()[0]

    def _delete(self, path: str) -> None:
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}
        try:
            call(self._api, "DELETE", path, options)
        except ApiRefused as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise


def _malformed(content: bytes) -> None:
    """Refuses to go on: what is not understood might be a pod with a slice.

    Raises:
        ApiRefused: always.
    """
    raise ApiRefused(HTTPStatus.OK, f"an object of an unknown form: {content[:200]!r}")
