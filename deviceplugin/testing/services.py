"""The two gRPC services that a kubelet offers to plugins and monitors: thin, state lives elsewhere.

Handlers run in the server's threads; what they call must take its own lock.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import grpc

from deviceplugin.kubelet.protos import deviceplugin_v1beta1_pb2 as pb
from deviceplugin.kubelet.protos import podresources_v1_pb2 as pr

from .plugin_client import DeviceState
from .records import AdmittedPod

Inventory = Mapping[str, Mapping[str, DeviceState]]


class Registration:
    """Serves v1beta1.Registration; ``register`` raises ValueError or RpcError to refuse."""

    def __init__(self, register: Callable[[pb.RegisterRequest], None]) -> None:
        self._register = register

    def Register(self, request: pb.RegisterRequest, context: Any) -> pb.Empty:  # noqa: N802
        """Takes in one plugin."""
        try:
            self._register(request)
        except ValueError as error:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except grpc.RpcError as error:
            context.abort(
                grpc.StatusCode.UNAVAILABLE,
                f"plugin of {request.resource_name} cannot be dialled: {error}",
            )
        return pb.Empty()


class PodResourcesService:
    """Serves v1.PodResourcesLister from two views of the kubelet's state."""

    def __init__(
        self,
        active_pods: Callable[[], Iterable[AdmittedPod]],
        inventory: Callable[[], Inventory],
    ) -> None:
        self._active_pods = active_pods
        self._inventory = inventory

    def List(self, request: Any, context: Any) -> pr.ListPodResourcesResponse:  # noqa: N802
        """Lists the active pods; plain init containers are left out, as the kubelet does."""
        inventory = self._inventory()
        pods = [_pod(pod, inventory) for pod in self._active_pods()]
        return pr.ListPodResourcesResponse(pod_resources=pods)

    def Get(  # noqa: N802
        self, request: pr.GetPodResourcesRequest, context: Any
    ) -> pr.GetPodResourcesResponse:
        """Shows one active pod."""
        for pod in self._active_pods():
            names = (pod.manifest.namespace, pod.manifest.name)
            if names == (request.pod_namespace, request.pod_name):
                return pr.GetPodResourcesResponse(pod_resources=_pod(pod, self._inventory()))
        context.abort(
            grpc.StatusCode.NOT_FOUND,
            f"pod {request.pod_namespace}/{request.pod_name} is not on this node",
        )
        raise AssertionError("abort returned")

    def GetAllocatableResources(  # noqa: N802
        self, request: Any, context: Any
    ) -> pr.AllocatableResourcesResponse:
        """Lists every healthy unit of every resource."""
        devices = [
            entry
            for resource, units in self._inventory().items()
            for entry in _by_numa(resource, [u for u in units.values() if u.healthy])
        ]
        return pr.AllocatableResourcesResponse(devices=devices)


def _pod(pod: AdmittedPod, inventory: Inventory) -> pr.PodResources:
    containers = []
    for container in pod.containers:
        if container.ends_first:
            continue
        devices = []
        for resource, ids in list(container.devices.items()):
            known = inventory.get(resource, {})
            units = [
                known.get(unit) or DeviceState(unit, False, container.numa.get(unit, ()))
                for unit in ids
            ]
            devices += _by_numa(resource, units)
        containers.append(pr.ContainerResources(name=container.manifest.name, devices=devices))
    return pr.PodResources(
        name=pod.manifest.name, namespace=pod.manifest.namespace, containers=containers
    )


def _by_numa(resource: str, units: Iterable[DeviceState]) -> list[pr.ContainerDevices]:
    """Returns one entry per NUMA node, as the kubelet has since 1.21."""
    groups: dict[tuple[int, ...], list[str]] = {}
    for unit in units:
        groups.setdefault(unit.numa_nodes, []).append(unit.device_id)
    return [
        pr.ContainerDevices(
            resource_name=resource,
            device_ids=ids,
            topology=pr.TopologyInfo(nodes=[pr.NUMANode(ID=node) for node in nodes]),
        )
        for nodes, ids in groups.items()
    ]
