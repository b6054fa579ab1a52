"""What an API server does with Pods and with nothing else: binding, status, and a graceful end."""

from typing import Any

from .kinds import POD
from .object_store import Content, ObjectStore, Stored
from .refusals import ApiFailure, bad_request, conflict, invalid

PHASES = ("Pending", "Running", "Succeeded", "Failed", "Unknown")


def prepare(content: Content) -> None:
    """Fills in what a new Pod gets."""
    content.setdefault("status", {}).setdefault("phase", "Pending")
    spec = content.setdefault("spec", {})
    spec.setdefault("schedulerName", "default-scheduler")
    spec.setdefault("priority", 0)
    if not spec.get("containers"):
        raise invalid("spec.containers: Required value")


def bind(store: ObjectStore, namespace: str, name: str, binding: Any) -> None:
    """Puts a Pod on a node, and the Binding's annotations and labels into the Pod.

    Raises:
        ApiFailure: it is bound, is being deleted, or is another one of that name.
    """
    target, metadata = binding.get("target") or {}, binding.get("metadata") or {}
    if metadata.get("name", name) != name:
        raise bad_request("the name in the body differs from the one in the path")
    if not target.get("name"):
        raise invalid("target.name: Required value")
    if target.get("kind", "Node") not in ("", "Node"):
        raise invalid(f"target.kind: Unsupported value: {target['kind']!r}")

    def edit(pod: Content) -> None:
        has = pod["metadata"]
        for key, word in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
            wanted = metadata.get(key)
            if wanted and wanted != has[key]:
                raise conflict(f"Precondition failed: {word} in precondition: {wanted}")
        if has.get("deletionTimestamp"):
            raise conflict(f"pod {name} is being deleted, cannot be assigned to a host")
        if pod["spec"].get("nodeName"):
            node = pod["spec"]["nodeName"]
            raise conflict(f"pod {name} is already assigned to node {node!r}")
        if pod["spec"].get("schedulingGates"):
            raise conflict(f"pod {name} has non-empty .spec.schedulingGates")
        pod["spec"]["nodeName"] = target["name"]
        for key in ("annotations", "labels"):
            if metadata.get(key):
                has[key] = {**(has.get(key) or {}), **metadata[key]}
        conditions = pod["status"].setdefault("conditions", [])
        conditions[:] = [c for c in conditions if c.get("type") != "PodScheduled"]
        conditions.append({"type": "PodScheduled", "status": "True"})

    store.change(POD, namespace, name, edit)


def set_phase(store: ObjectStore, namespace: str, name: str, phase: str, reason: str = "") -> None:
    """Says as the kubelet does how a Pod is; one that is gone is left."""
    assert phase in PHASES, phase

    def edit(pod: Content) -> None:
        pod["status"]["phase"] = phase
        pod["status"].setdefault("startTime", store.timestamp())
        if reason:
            pod["status"]["reason"] = reason

    try:
        store.change(POD, namespace, name, edit)
    except ApiFailure as failure:
        if failure.status != 404:
            raise


def delete(store: ObjectStore, namespace: str, name: str, grace_s: int | None, uid: str) -> Stored:
    """Removes a Pod at once, or marks one that a kubelet has to end first.

    Raises:
        ApiFailure: it is not there.
    """
    with store.lock:
        pod = store.get(POD, namespace, name)
        is_bound = bool(pod.content["spec"].get("nodeName"))
        has_ended = pod.content["status"]["phase"] in ("Succeeded", "Failed")
        seconds = 30 if grace_s is None else grace_s
        if not is_bound or has_ended or seconds == 0:
            return store.delete(POD, namespace, name, uid)

        def edit(content: Content) -> None:
            if uid and content["metadata"]["uid"] != uid:
                raise conflict(f"Precondition failed: UID in precondition: {uid}")
            content["metadata"].setdefault("deletionTimestamp", store.timestamp())
            content["metadata"]["deletionGracePeriodSeconds"] = seconds

        return store.change(POD, namespace, name, edit)
