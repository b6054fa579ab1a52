"""The few fields of a Pod that matter here, as the API server and kube-scheduler send them.

`Pod` is what msgspec decodes, and nothing else of the object is kept; `pod_request` makes of it
what the rest of the program works with. Pure.
"""

import sys
from datetime import datetime

import msgspec

from deviceplugin.model.chosen_gpus import CHOSEN_GPUS_KEY, chosen_gpus
from deviceplugin.model.pod_requests import ContainerKind, ContainerRequest, PodRequest
from libvgpu.errors import VgpuError

from .quantity import unit_count

_ENDED = frozenset({"Succeeded", "Failed"})


class _Part(msgspec.Struct, rename="camel", omit_defaults=True):
    """An object of the API; fields that are not named here are passed over."""


class Resources(_Part):
    """What a container may have, by resource."""

    limits: dict[str, str | int] | None = None


class Container(_Part):
    """One container; ``restart_policy`` ``Always`` makes an init container a sidecar."""

    name: str = ""
    resources: Resources | None = None
    restart_policy: str | None = None


class PodMetadata(_Part):
    """Who a pod is."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    annotations: dict[str, str] | None = None


class PodSpec(_Part):
    """What a pod asks for."""

    node_name: str = ""
    priority: int | None = None
    scheduler_name: str = ""
    containers: list[Container] | None = None
    init_containers: list[Container] | None = None


class PodStatus(_Part):
    """Where a pod is in its life; the kubelet's first word of it has a start time."""

    phase: str = ""
    start_time: str | None = None


class Pod(_Part):
    """One pod."""

    metadata: PodMetadata
    spec: PodSpec = msgspec.field(default_factory=PodSpec)
    status: PodStatus = msgspec.field(default_factory=PodStatus)


def trimmed(pod: Pod, domain: str) -> Pod | None:
    """Returns the pod without what is of no use below a domain; None where it asks for nothing."""
    init = _asking(pod.spec.init_containers, domain)
    containers = _asking(pod.spec.containers, domain)
    if not init and not containers:
        return None
    pod.metadata.annotations = _below(pod.metadata.annotations, domain)
    pod.spec.init_containers, pod.spec.containers = init, containers
    return pod


def pod_request(pod: Pod, domain: str) -> PodRequest | None:
    """Returns what a pod asks for; None where it asks for nothing of the domain.

    Args:
        domain: of the resources, as ``nvidia.com``.

    Raises:
        VgpuError: an amount is none.
    """
    containers = [
        _container(each, domain, pod, is_init)
        for is_init, group in ((True, pod.spec.init_containers), (False, pod.spec.containers))
        for each in group or ()
    ]
    asking = tuple(each for each in containers if each.amounts)
    if not asking:
        return None
    annotations = _below(pod.metadata.annotations, domain)
    return PodRequest(
        uid=pod.metadata.uid,
        namespace=sys.intern(pod.metadata.namespace),
        name=pod.metadata.name,
        containers=asking,
        created_at=_moment(pod.metadata.creation_timestamp),
        node=sys.intern(pod.spec.node_name),
        priority=pod.spec.priority or 0,
        annotations=annotations,
        chosen=chosen_gpus(annotations.get(f"{domain}/{CHOSEN_GPUS_KEY}", "")),
        is_ended=pod.status.phase in _ENDED,
        is_acknowledged=bool(pod.status.start_time),
    )


def row_of(pod: Pod, domain: str) -> tuple[str, tuple[str, str], PodRequest | None]:
    """Returns a pod's uid, its namespace and name, and what it asks for; None for nothing.

    An amount that is none asks for nothing: the kubelet reads none in it either.
    """
    try:
        request = pod_request(pod, domain)
    except VgpuError:
        request = None
    return pod.metadata.uid, (pod.metadata.namespace, pod.metadata.name), request


def _below(annotations: dict[str, str] | None, domain: str) -> dict[str, str]:
    return {
        sys.intern(key): value
        for key, value in (annotations or {}).items()
        if key.startswith(f"{domain}/")
    }


def _limits(container: Container, domain: str) -> dict[str, str | int]:
    limits = (container.resources and container.resources.limits) or {}
    return {key: value for key, value in limits.items() if key.startswith(f"{domain}/")}


def _asking(containers: list[Container] | None, domain: str) -> list[Container]:
    return [each for each in containers or () if _limits(each, domain)]


def _container(container: Container, domain: str, pod: Pod, is_init: bool) -> ContainerRequest:
    amounts: dict[str, int] = {}
    for resource, text in _limits(container, domain).items():
        try:
            amount = unit_count(text)
        except VgpuError as error:
            where = f"{pod.metadata.namespace}/{pod.metadata.name}, container {container.name}"
            raise VgpuError(f"{where} asks for {resource}: {error.message}") from None
        if amount:
            amounts[sys.intern(resource)] = amount
    kind = ContainerKind.APP
    if is_init:
        is_sidecar = container.restart_policy == "Always"
        kind = ContainerKind.SIDECAR if is_sidecar else ContainerKind.INIT
    return ContainerRequest(sys.intern(container.name), amounts, kind)


def _moment(text: str | None) -> float:
    """Returns seconds since the epoch, 0 where the text is no time."""
    try:
        return datetime.fromisoformat(text).timestamp() if text else 0.0
    except (ValueError, OverflowError, OSError):
        return 0.0
