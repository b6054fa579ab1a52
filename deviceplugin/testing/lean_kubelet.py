"""A kubelet for measurements: it makes the kubelet's calls and takes their time, and little else.

`StandInKubelet` is for what is true, this one for how long it takes. Requests are serialised before
the clock starts and answers decoded after it has stopped, and podresources answers with bytes that
were made when a container got its units: so what is timed is the agent's, gRPC's on both sides,
and nothing of this module's. As in the kubelet, GetPreferredAllocation carries the full list of
free units in no order, pods are admitted one by one, the units of an ended pod are offered to the
next one, and podresources refuses more than 100 calls a second after a burst of 10.

Only what a measurement needs is here: no init containers, no NUMA, no health.

Synchronised by one lock around the tables; the calls themselves are made by one thread.
"""

import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from deviceplugin.kubelet.protos import deviceplugin_v1beta1_pb2 as pb
from deviceplugin.kubelet.protos import podresources_v1_pb2 as pr
from deviceplugin.kubelet.transport import why
from libvgpu.errors import AllocationRefused, VgpuError

from .lean_wire import Call, LeanPlugin, RateLimit, serve

NAMESPACE, CONTAINER = "default", "main"
_POLL_S = 0.05


@dataclass(slots=True)
class LeanPod:
    """A pod of one container.

    Attributes:
        units: by resource.
        mounts: container path -> host path, of all answers.
    """

    name: str
    units: dict[str, list[str]] = field(default_factory=dict)
    mounts: dict[str, str] = field(default_factory=dict)


class LeanKubelet:
    """Everything an agent needs of a kubelet; `start` and `stop` may be repeated.

    Attributes:
        calls: all calls of `admit` and `start_container`, in order; the user empties it.
        listings: how often podresources was asked.
        rejected: how many of them were too many.
    """

    def __init__(self, directory: Path, seed: int) -> None:
        """Makes a kubelet that is not serving yet.

        Args:
            directory: takes the place of /var/lib/kubelet.
            seed: of the order of resources and of free units.
        """
        self.plugins: dict[str, LeanPlugin] = {}
        self.calls: list[Call] = []
        self.listings = self.rejected = 0
        self._directory = directory
        self._order = random.Random(seed)  # noqa: S311 - an order by a seed
        self._changed = threading.Condition()
        self._pods: dict[str, tuple[LeanPod, bytes]] = {}
        self._servers: list[Any] = []
        self._granted = RateLimit()

    def start(self) -> None:
        """Removes all sockets of plugins, as a kubelet does, and serves."""
        plugins = self._directory / "device-plugins"
        resources = self._directory / "pod-resources"
        for directory in (plugins, resources):
            directory.mkdir(parents=True, exist_ok=True)
            for socket in directory.iterdir():
                socket.unlink()
        self._servers = [
            serve(resources / "kubelet.sock", "v1.PodResourcesLister", {"List": self._list}),
            serve(plugins / "kubelet.sock", "v1beta1.Registration", {"Register": self._register}),
        ]

    def stop(self) -> None:
        """Ends both servers and all connections; pods stay, as they do when a kubelet ends."""
        for server in self._servers:
            server.stop(None).wait()
        self._servers = []
        with self._changed:
            plugins, self.plugins = list(self.plugins.values()), {}
        for plugin in plugins:
            plugin.close()

    def wait_for_resources(
        self, resources: Iterable[str], timeout_s: float, check: Callable[[], None]
    ) -> None:
        """Waits until every resource has healthy units.

        Args:
            resources: their names.
            timeout_s: seconds at most.
            check: called now and then; may raise to give up.

        Raises:
            VgpuError: naming what is missing when the time is over.
        """
        wanted = set(resources)
        deadline = time.monotonic() + timeout_s
        while missing := wanted - {n for n, p in list(self.plugins.items()) if p.units}:
            if time.monotonic() > deadline:
                raise VgpuError(f"after {timeout_s:g} s nobody offers {', '.join(sorted(missing))}")
            check()
            with self._changed:
                self._changed.wait(_POLL_S)

    def admit(self, name: str, limits: Mapping[str, int]) -> LeanPod:
        """Admits a pod: the resources in random order, each of them wholly before the next.

        Raises:
            AllocationRefused: with the plugin's sentence; the pod is forgotten.
        """
        pod = LeanPod(name)
        resources = list(limits)
        self._order.shuffle(resources)
        for resource in resources:
            try:
                self._allocate(pod, self.plugins[resource], limits[resource])
            except grpc.RpcError as error:
                self.finish(pod)
                raise AllocationRefused(f"pod {name}, {resource}: {why(error)}") from None
            listed = pr.ListPodResourcesResponse(pod_resources=[_listed(pod)])
            with self._changed:
                self._pods[name] = pod, listed.SerializeToString()
        return pod

    def start_container(self, pod: LeanPod) -> None:
        """Makes the calls that come before a container's start.

        Raises:
            AllocationRefused: with the plugin's sentence.
        """
        for resource, units in pod.units.items():
            request = pb.PreStartContainerRequest(devices_ids=units)
            try:
                self._call(self.plugins[resource], "PreStartContainer", request)
            except grpc.RpcError as error:
                raise AllocationRefused(f"pod {pod.name}, {resource}: {why(error)}") from None

    def finish(self, pod: LeanPod) -> None:
        """Ends a pod: it is listed no more, and its units are free for the next."""
        with self._changed:
            self._pods.pop(pod.name, None)

    def prefer(self, plugin: LeanPlugin, count: int) -> list[str]:
        """Returns which free units a plugin would have a container take; offers it all of them."""
        pods = [pod for pod, _ in self._pods.values()]
        held = {unit for other in pods for unit in other.units.get(plugin.resource, ())}
        free = [unit for unit in plugin.units if unit not in held]
        self._order.shuffle(free)
        asked = pb.ContainerPreferredAllocationRequest(
            available_deviceIDs=free, allocation_size=count
        )
        answer = self._call(
            plugin,
            "GetPreferredAllocation",
            pb.PreferredAllocationRequest(container_requests=[asked]),
        )
        (preferred,) = pb.PreferredAllocationResponse.FromString(answer).container_responses
        return list(preferred.deviceIDs)

    def _allocate(self, pod: LeanPod, plugin: LeanPlugin, count: int) -> None:
        units = self.prefer(plugin, count)
        request = pb.AllocateRequest(
            container_requests=[pb.ContainerAllocateRequest(devices_ids=units)]
        )
        answer = self._call(plugin, "Allocate", request)
        (given,) = pb.AllocateResponse.FromString(answer).container_responses
        pod.units[plugin.resource] = units
        pod.mounts |= {mount.container_path: mount.host_path for mount in given.mounts}

    def _call(self, plugin: LeanPlugin, method: str, request: Any) -> bytes:
        answer, seconds = plugin.call(method, request.SerializeToString())
        self.calls.append(Call(method, plugin.resource, seconds))
        return answer

    def _register(self, request: bytes, context: Any) -> bytes:
        asked = pb.RegisterRequest.FromString(request)
        socket = self._directory / "device-plugins" / asked.endpoint
        try:
            plugin = LeanPlugin(asked.resource_name, socket, self._notify)
        except grpc.RpcError as error:
            context.abort(grpc.StatusCode.UNAVAILABLE, why(error))
        with self._changed:
            replaced = self.plugins.get(asked.resource_name)
            self.plugins[asked.resource_name] = plugin
        if replaced is not None:
            replaced.close()
        return b""

    def _list(self, request: bytes, context: Any) -> bytes:
        with self._changed:
            self.listings += 1
            if self._granted.take():
                pods = [listed for _, listed in self._pods.values()]
                self._order.shuffle(pods)  # it lists a map
                # A repeated field of a message is the field of its parts, one behind the other.
                return b"".join(pods)
            self.rejected += 1
        context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")
        raise AssertionError("abort returned")

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()


def _listed(pod: LeanPod) -> pr.PodResources:
    devices = [
        pr.ContainerDevices(resource_name=resource, device_ids=units)
        for resource, units in pod.units.items()
    ]
    container = pr.ContainerResources(name=CONTAINER, devices=devices)
    return pr.PodResources(name=pod.name, namespace=NAMESPACE, containers=[container])
