"""The stand-in itself: sockets, registered plugins, admitted pods.

One lock guards the tables; no RPC is made under it, so a plugin may call podresources from inside
a call of ours. Admissions are serial (their own lock), as in the kubelet. Pods that have ended
keep their units until the next admission or podresources List looks, as in the kubelet.
"""

import random
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from concurrent import futures
from pathlib import Path
from types import TracebackType
from typing import Any

import grpc

from deviceplugin.kubelet.protos import deviceplugin_v1beta1_pb2 as pb
from deviceplugin.kubelet.protos import deviceplugin_v1beta1_pb2_grpc as plugin_rpc
from deviceplugin.kubelet.protos import podresources_v1_pb2_grpc as podresources_rpc
from libvgpu.errors import VgpuError

from .admission import AdmissionFailed, AdmittedPod, admit_container
from .merge import RunOptions, merge_answers
from .plugin import DeviceState, Plugin, reason
from .pods import PodManifest
from .services import PodResources, Registration

_API_VERSION = "v1beta1"
_RESOURCE = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?/[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?")
_MESSAGE_LIMIT_BYTES = 16 << 20  # what podresources clients are told to accept
_THREADS = 8
_POLL_S = 0.1


class StandInKubelet:
    """A kubelet's device manager in this process, under a directory of the caller's.

    Use it as a context manager, or `start` and `stop` it.
    """

    def __init__(self, directory: Path, seed: int | None = None) -> None:
        """Makes a kubelet that is not serving yet.

        Args:
            directory: takes the place of /var/lib/kubelet.
            seed: of every random choice; None for a fresh one.
        """
        self.plugin_directory = directory / "device-plugins"
        self.plugin_socket = self.plugin_directory / "kubelet.sock"
        self.podresources_socket = directory / "pod-resources" / "kubelet.sock"
        self._order = random.Random(seed)
        self._lock = threading.Condition()
        self._admission = threading.Lock()
        self._plugins: dict[str, Plugin] = {}
        self._pods: dict[str, AdmittedPod] = {}
        self._servers: list[Any] = []

    def __enter__(self) -> "StandInKubelet":
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Serves both sockets; plugin sockets of an earlier run are removed, as a kubelet does."""
        self.plugin_directory.mkdir(parents=True, exist_ok=True)
        self.podresources_socket.parent.mkdir(parents=True, exist_ok=True)
        for leftover in [*self.plugin_directory.iterdir(), self.podresources_socket]:
            if leftover.is_socket():
                leftover.unlink()
        resources = PodResources(self._active_pods, self._inventory)
        self._servers = [
            self._serve(
                self.podresources_socket,
                lambda s: podresources_rpc.add_PodResourcesListerServicer_to_server(resources, s),  # type: ignore[no-untyped-call]
            ),
            self._serve(
                self.plugin_socket,
                lambda s: plugin_rpc.add_RegistrationServicer_to_server(  # type: ignore[no-untyped-call]
                    Registration(self._register), s
                ),
            ),
        ]

    def stop(self) -> None:
        """Ends both servers and every connection to a plugin."""
        for server in self._servers:
            server.stop(grace=None).wait()
        self._servers = []
        with self._lock:
            plugins, self._plugins = list(self._plugins.values()), {}
        for plugin in plugins:
            plugin.close()
        for socket in (self.plugin_socket, self.podresources_socket):
            socket.unlink(missing_ok=True)

    def allocatable(self) -> dict[str, int]:
        """Returns the number of healthy units of each registered resource."""
        return {
            resource: sum(unit.healthy for unit in units.values())
            for resource, units in self._inventory().items()
        }

    def wait_for_resources(
        self,
        resources: Iterable[str],
        timeout_s: float,
        while_waiting: Callable[[], None] = lambda: None,
    ) -> None:
        """Waits until each resource is registered and has a healthy unit.

        Args:
            resources: their names.
            timeout_s: seconds to wait at most.
            while_waiting: called now and then; may raise to give up.

        Raises:
            VgpuError: naming what is still missing when the time is over.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            have = self.allocatable()
            missing = sorted(name for name in resources if not have.get(name))
            if not missing:
                return
            if time.monotonic() > deadline:
                raise VgpuError(
                    f"after {timeout_s:.0f} s no plugin offers {', '.join(missing)}; "
                    f"registered are: {', '.join(sorted(have)) or 'none'}"
                )
            while_waiting()
            with self._lock:
                self._lock.wait(_POLL_S)

    def admit(self, manifest: PodManifest) -> AdmittedPod:
        """Admits one pod: every unit it asks for is allocated.

        Raises:
            AdmissionFailed: with the plugin's own sentence; the pod counts as failed.
        """
        with self._admission:
            pod = AdmittedPod(manifest, str(uuid.uuid4()))
            with self._lock:
                self._forget_ended()
                plugins = dict(self._plugins)
                held: dict[str, set[str]] = {}
                for other in self._pods.values():
                    for container in other.containers:
                        for resource, ids in container.devices.items():
                            held.setdefault(resource, set()).update(ids)
                self._pods[pod.uid] = pod
            try:
                for init, group in ((True, manifest.init_containers), (False, manifest.containers)):
                    for container_manifest in group:
                        admit_container(pod, container_manifest, init, plugins, held, self._order)
            except BaseException:
                pod.active = False
                raise
            return pod

    def run_options(self, pod: AdmittedPod, container_name: str) -> RunOptions:
        """Returns what the runtime is told when a container starts, after PreStartContainer.

        Raises:
            AdmissionFailed: a plugin refused the start, with its sentence.
        """
        container = pod.container(container_name)
        resources = list(container.answers)
        self._order.shuffle(resources)
        with self._lock:
            plugins = dict(self._plugins)
        for resource in resources:
            plugin = plugins.get(resource)
            try:
                if plugin is None:
                    raise ValueError("its plugin is not registered")
                if plugin.options.pre_start_required:
                    plugin.pre_start(container.devices[resource])
            except (grpc.RpcError, ValueError) as error:
                raise AdmissionFailed(
                    f"pod {pod.manifest.namespace}/{pod.manifest.name}, container "
                    f"{container_name}: PreStartContainer of {resource} failed: {reason(error)}"
                ) from error
        self._order.shuffle(resources)
        return merge_answers((name, container.answers[name]) for name in resources)

    def finish(self, pod: AdmittedPod) -> None:
        """Marks a pod as ended; its units return at the next look."""
        with self._lock:
            pod.active = False

    def _serve(self, socket: Path, add: Callable[[Any], None]) -> Any:
        server = grpc.server(
            futures.ThreadPoolExecutor(_THREADS),
            options=[
                ("grpc.max_receive_message_length", _MESSAGE_LIMIT_BYTES),
                ("grpc.max_send_message_length", _MESSAGE_LIMIT_BYTES),
            ],
        )
        add(server)
        server.add_insecure_port(f"unix:{socket}")
        server.start()
        return server

    def _register(self, request: pb.RegisterRequest) -> None:
        if request.version != _API_VERSION:
            raise ValueError(f"version {request.version!r} is not supported: {_API_VERSION!r} is")
        if not _RESOURCE.fullmatch(request.resource_name):
            raise ValueError(f"{request.resource_name!r} is not the name of an extended resource")
        if not request.endpoint or "/" in request.endpoint:
            raise ValueError(f"endpoint {request.endpoint!r} is not a file name")
        plugin = Plugin(
            request.resource_name, self.plugin_directory / request.endpoint, self._changed
        )
        with self._lock:
            replaced = self._plugins.get(request.resource_name)
            self._plugins[request.resource_name] = plugin  # two with one name: the newest wins
        plugin.start()
        if replaced is not None:
            replaced.close()

    def _changed(self) -> None:
        with self._lock:
            self._lock.notify_all()

    def _forget_ended(self) -> None:
        self._pods = {uid: pod for uid, pod in self._pods.items() if pod.active}

    def _active_pods(self) -> list[AdmittedPod]:
        with self._lock:
            self._forget_ended()
            return list(self._pods.values())

    def _inventory(self) -> dict[str, dict[str, DeviceState]]:
        with self._lock:
            return {resource: plugin.devices for resource, plugin in self._plugins.items()}
