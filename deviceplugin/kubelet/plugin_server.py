"""One device-plugin server: one resource on one Unix socket.

This only translates between messages and `ResourceOffer` (`handlers`: between bytes and messages).
Each call runs in a thread of the server's pool, and a `ListAndWatch` stream keeps its thread for as
long as the kubelet listens. A refusal travels as FAILED_PRECONDITION with its sentence, which the
kubelet shows on the pod.
"""

from collections.abc import Callable, Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc

from deviceplugin import runtime
from deviceplugin.core.offers import ResourceOffer
from deviceplugin.core.service import Unit
from deviceplugin.kubelet.protos import deviceplugin_v1beta1_pb2 as pb
from deviceplugin.store.container_answer import Answer
from libvgpu.errors import VgpuError

from .handlers import SERVICE, method_handlers
from .socket_names import socket_path
from .transport import SERVER_OPTIONS

#: The kubelet listens once and admits one pod at a time; a new one comes before the old has gone.
#: Containers it starts side by side: `mps.keeper` lets fewer than these wait for MPS at a time.
_THREADS = 8
#: A stream is woken when it has to end; should that ever be missed, it checks by itself.
_LOOK_EVERY_S = 60.0
_STOP_GRACE_S = 0.5

Observe = Callable[[str, float], None]


class PluginServer:
    """Serves one resource; `start` and `stop` may be repeated.

    Attributes:
        streams_opened: how often the kubelet began to listen.
    """

    def __init__(
        self,
        offer: ResourceOffer,
        directory: Path,
        observe: Observe = lambda method, seconds: None,
    ) -> None:
        """Makes a server that is not serving yet.

        Args:
            offer: what there is, and who answers.
            directory: the kubelet's device-plugins directory.
            observe: told the duration of every Allocate, in seconds.
        """
        self.resource = offer.name
        self.socket = socket_path(self.resource, directory)
        self._offer = offer
        self._observe = observe
        self._server: Any = None
        self._pool: futures.Executor | None = None
        self._stopping = runtime.event()
        self._listeners: set[object] = set()
        self.streams_opened = 0
        self._list = runtime.lock()
        self._listed: tuple[int, bytes] | None = None  # the last list, and its revision

    @property
    def is_listened_to(self) -> bool:
        """Whether the kubelet has a stream of ours open; from any thread."""
        return bool(self._listeners)

    def start(self) -> None:
        """Serves on a fresh socket; one left behind by a crash is removed.

        Raises:
            VgpuError: the socket cannot be made.
        """
        self._stopping = runtime.event()
        self.socket.unlink(missing_ok=True)
        self._pool = runtime.pool(_THREADS, self.socket.stem)
        self._server = grpc.server(self._pool, options=SERVER_OPTIONS)
        handlers = method_handlers(self, self._stopping)
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(SERVICE, handlers),)
        )
        try:
            self._server.add_insecure_port(f"unix:{self.socket}")
        except RuntimeError as error:  # grpc's only word for it
            raise VgpuError(f"the socket {self.socket} cannot be served: {error}") from None
        self._server.start()

    def stop(self) -> None:
        """Ends all streams and removes the socket."""
        self._stopping.set()
        self._offer.state.wake()
        if self._server is not None:
            self._server.stop(_STOP_GRACE_S).wait()
            self._server = None
        if self._pool is not None:
            self._pool.shutdown(wait=False)
            self._pool = None
        self.socket.unlink(missing_ok=True)

    def watch(self, stopping: runtime.Event, context: Any) -> Iterator[bytes]:
        """Yields the whole list, encoded, now and after every change of it."""

        def over() -> bool:
            return stopping.is_set() or not context.is_active()

        context.add_callback(self._offer.state.wake)  # the kubelet has gone
        listener, last = object(), b""
        self._listeners.add(listener)
        self.streams_opened += 1
        try:
            while not over():
                revision, message = self._message()
                if message != last:
                    yield message
                    last = message
                while not self._offer.state.wait_for_change(revision, _LOOK_EVERY_S, over):
                    if over():
                        return
        finally:
            self._listeners.discard(listener)

    def _message(self) -> tuple[int, bytes]:
        """Returns the list and its revision; encoded once for each."""
        with self._list:
            known = self._listed
            if known is None or known[0] != self._offer.state.revision:
                revision, units = self._offer.units()
                message = pb.ListAndWatchResponse(devices=[_device(unit) for unit in units])
                self._listed = known = revision, message.SerializeToString()
            return known

    def prefer(self, request: Any) -> pb.PreferredAllocationResponse:
        """Answers GetPreferredAllocation."""
        chosen = [
            self._offer.prefer(
                list(r.available_deviceIDs),
                list(r.must_include_deviceIDs),
                r.allocation_size,
            )
            for r in request.container_requests
        ]
        responses = [pb.ContainerPreferredAllocationResponse(deviceIDs=units) for units in chosen]
        return pb.PreferredAllocationResponse(container_responses=responses)

    def allocate(self, request: Any) -> pb.AllocateResponse:
        """Answers Allocate."""
        started = runtime.monotonic()
        try:
            answers = [
                self._offer.allocate(list(r.devices_ids)) for r in request.container_requests
            ]
        finally:
            self._observe(self.resource, runtime.monotonic() - started)
        return pb.AllocateResponse(container_responses=[_response(a) for a in answers])

    def pre_start(self, request: Any) -> pb.PreStartContainerResponse:
        """Answers PreStartContainer."""
        self._offer.pre_start(list(request.devices_ids))
        return pb.PreStartContainerResponse()


def _device(unit: Unit) -> pb.Device:
    device = pb.Device(ID=unit.name, health="Healthy" if unit.healthy else "Unhealthy")
    if unit.numa_node is not None:
        device.topology.nodes.add(ID=unit.numa_node)
    return device


def _response(answer: Answer) -> pb.ContainerAllocateResponse:
    return pb.ContainerAllocateResponse(
        envs=answer.envs,
        mounts=[
            pb.Mount(container_path=m.container_path, host_path=m.host_path, read_only=m.read_only)
            for m in answer.mounts
        ],
        devices=[
            pb.DeviceSpec(
                container_path=d.container_path, host_path=d.host_path, permissions=d.permissions
            )
            for d in answer.devices
        ],
        annotations=answer.annotations,
        cdi_devices=[pb.CDIDevice(name=name) for name in answer.cdi_devices],
    )
