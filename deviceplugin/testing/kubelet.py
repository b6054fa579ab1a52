"""The stand-in itself: the kubelet's sockets in front of a `DeviceManager`.

`stop` and `start` are a restart of the kubelet: its pods stay, their containers run on, what each
was given comes back from ``kubelet_internal_checkpoint``, and the plugins must register again.
"""

import random
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

import grpc

from deviceplugin import runtime
from deviceplugin.kubelet.protos import deviceplugin_v1beta1_pb2 as pb
from deviceplugin.kubelet.protos import deviceplugin_v1beta1_pb2_grpc as plugin_rpc
from deviceplugin.kubelet.protos import podresources_v1_pb2_grpc as podresources_rpc
from libvgpu.errors import VgpuError

from . import checkpoint_file
from .device_manager import DeviceManager
from .merge import RunOptions
from .pods import PodManifest
from .records import AdmittedPod
from .services import PodResourcesService, Registration

_API_VERSION = "v1beta1"
_RESOURCE = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?/[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?")
_MESSAGE_LIMIT_BYTES = 16 << 20  # what podresources clients are told to accept
_THREADS = 8
_POLL_S = 0.1


class StandInKubelet:
    """A kubelet's device manager in this process, under a directory of the caller's.

    Use it as a context manager, or `start` and `stop` it.
    """

    def __init__(
        self,
        directory: Path,
        seed: int | None = None,
        forgets_in_flight: bool = False,
        makes_pod_directories: bool = False,
    ) -> None:
        """Makes a kubelet that is not serving yet.

        Args:
            directory: takes the place of /var/lib/kubelet.
            seed: of every random choice; None for a fresh one.
            forgets_in_flight: when a pod has ended and somebody lists podresources, forget the
                units of the admission that is under way, and offer them (kubernetes#137534).
            makes_pod_directories: keep a directory for each pod from its admission to its end, as
                a kubelet does for whoever can see its root directory.
        """
        self.plugin_directory = directory / "device-plugins"
        self.plugin_socket = self.plugin_directory / "kubelet.sock"
        self.podresources_socket = directory / "pod-resources" / "kubelet.sock"
        self.checkpoint = self.plugin_directory / checkpoint_file.NAME
        self._pods = directory / "pods" if makes_pod_directories else None
        if self._pods is not None:
            self._pods.mkdir(parents=True)
        self._manager = DeviceManager(
            self.checkpoint,
            random.Random(seed),  # noqa: S311 - an order by a seed
            forgets_in_flight,
        )
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
        self._manager.open()
        resources = PodResourcesService(self._manager.active_pods, self._manager.inventory)
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
        self._manager.close()
        for socket in (self.plugin_socket, self.podresources_socket):
            socket.unlink(missing_ok=True)

    def end_stream(self, resource: str) -> None:
        """Ends the stream of a plugin's devices; it stays registered only by its own account."""
        self._manager.end_stream(resource)

    def listen(self, is_listening: bool) -> None:
        """Opens streams of the plugins that register from now on, or takes their registrations
        alone.
        """
        self._manager.is_listening = is_listening

    def allocatable(self) -> dict[str, int]:
        """Returns the number of healthy units of each registered resource."""
        return {
            resource: sum(unit.healthy for unit in units.values())
            for resource, units in self._manager.inventory().items()
        }

    def healthy_units(self, resource: str) -> list[str]:
        """Returns the names of the healthy units of a registered resource."""
        units = self._manager.inventory().get(resource, {})
        return [name for name, unit in units.items() if unit.healthy]

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
        deadline = runtime.monotonic() + timeout_s
        while True:
            have = self.allocatable()
            missing = sorted(name for name in resources if not have.get(name))
            if not missing:
                return
            if runtime.monotonic() > deadline:
                raise VgpuError(
                    f"after {timeout_s:.0f} s no plugin offers {', '.join(missing)}; "
                    f"registered are: {', '.join(sorted(have)) or 'none'}"
                )
            while_waiting()
            with self._manager.changed:
                self._manager.changed.wait(_POLL_S)

    def admit(self, manifest: PodManifest) -> AdmittedPod:
        """Admits one pod: every unit it asks for is allocated.

        Raises:
            AdmissionFailed: with the plugin's own sentence; the pod counts as failed.
        """
        pod = self._manager.admit(manifest)
        if self._pods is not None:
            (self._pods / pod.uid).mkdir()
        return pod

    def readmit(self, pod: AdmittedPod) -> None:
        """Admits a pod again, as a kubelet does with all of its pods when it was restarted.

        Containers that run pass, and so do those whose units are healthy. Others fail, above all
        while their plugin has not registered yet.

        Raises:
            AdmissionFailed: the pod counts as failed.
        """
        self._manager.readmit(pod)

    def run_options(self, pod: AdmittedPod, container_name: str) -> RunOptions:
        """Returns what the runtime is told when a container starts, after PreStartContainer.

        A kubelet that was restarted does not know what a plugin wants until it has registered, and
        starts the container without PreStartContainer.

        Raises:
            AdmissionFailed: a plugin refused the start, with its sentence.
        """
        return self._manager.start_container(pod, pod.container(container_name))

    def finish(self, pod: AdmittedPod) -> None:
        """Marks a pod as ended; its units return at the next admission or List."""
        self._manager.finish(pod)
        if self._pods is not None:
            (self._pods / pod.uid).rmdir()

    def lose_containers(self) -> None:
        """Notes that no container runs any more: the node was rebooted."""
        self._manager.lose_containers()

    def _serve(self, socket: Path, add: Callable[[Any], None]) -> Any:
        server = grpc.server(
            runtime.pool(_THREADS, "kubelet"),
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
        self._manager.connect(request.resource_name, self.plugin_directory / request.endpoint)
