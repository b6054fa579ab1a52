"""One device-plugin server: one resource on one Unix socket.

The handlers only translate between the wire and `SliceService`; each runs in a thread of the
server's pool, and a `ListAndWatch` stream keeps its thread for as long as the kubelet listens.
A refusal travels as FAILED_PRECONDITION with its sentence, which the kubelet shows on the pod.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc

from deviceplugin.kubelet.protos import deviceplugin_v1beta1_pb2 as pb
from deviceplugin.kubelet.protos import deviceplugin_v1beta1_pb2_grpc as rpc
from deviceplugin.log import LOGGER, event
from deviceplugin.service import SliceService, Unit
from deviceplugin.slices import Answer
from deviceplugin.units import Half, resource_name
from libvgpu.errors import UsageError, VgpuError
from libvgpu.limits import Family

from .transport import SERVER_OPTIONS

#: ListAndWatch streams of a kubelet that went away linger until their next look.
_THREADS = 8
_LOOK_EVERY_S = 1.0
_STOP_GRACE_S = 0.5
SOCKET_PATH_BYTES = 107  # sun_path less its final NUL

OPTIONS = pb.DevicePluginOptions(pre_start_required=True, get_preferred_allocation_available=True)
Observe = Callable[[str, float], None]


class PluginServer:
    """Serves one resource; `start` and `stop` may be repeated."""

    def __init__(
        self,
        service: SliceService,
        family: Family,
        half: Half,
        directory: Path,
        observe: Observe = lambda method, seconds: None,
    ) -> None:
        """Makes a server that is not serving yet.

        Args:
            directory: the kubelet's device-plugins directory.
            observe: told the duration of every Allocate, in seconds.

        Raises:
            UsageError: the socket's path would be too long.
        """
        self.resource = resource_name(service.layout.resource_domain, family, half)
        self.socket = directory / (self.resource.replace("/", "-") + ".sock")
        if len(os.fsencode(self.socket)) > SOCKET_PATH_BYTES:
            raise UsageError(
                f"the socket {self.socket} has a path longer than the {SOCKET_PATH_BYTES} bytes "
                "that a Unix socket may have; choose a shorter kubelet directory"
            )
        self._service, self._family, self._half = service, family, half
        self._observe = observe
        self._server: Any = None
        self._stopping = threading.Event()

    def start(self) -> None:
        """Serves on a fresh socket; one left behind by a crash is removed.

        Raises:
            VgpuError: the socket cannot be made.
        """
        self._stopping = threading.Event()
        self.socket.unlink(missing_ok=True)
        self._server = grpc.server(
            futures.ThreadPoolExecutor(_THREADS, thread_name_prefix=self.socket.stem),
            options=SERVER_OPTIONS,
        )
        rpc.add_DevicePluginServicer_to_server(  # type: ignore[no-untyped-call]
            _Servicer(self, self._stopping), self._server
        )
        try:
            self._server.add_insecure_port(f"unix:{self.socket}")
        except RuntimeError as error:  # grpc's only word for it
            raise VgpuError(f"the socket {self.socket} cannot be served: {error}") from None
        self._server.start()

    def stop(self) -> None:
        """Ends all streams and removes the socket."""
        self._stopping.set()
        self._service.wake()
        if self._server is not None:
            self._server.stop(_STOP_GRACE_S).wait()
            self._server = None
        self.socket.unlink(missing_ok=True)

    def watch(self, stopping: threading.Event, context: Any) -> Iterator[pb.ListAndWatchResponse]:
        """Yields the whole list now and after every change."""

        def over() -> bool:
            return stopping.is_set() or not context.is_active()

        while not over():
            revision, units = self._service.units(self._family, self._half)
            yield pb.ListAndWatchResponse(devices=[_device(unit) for unit in units])
            while not self._service.wait_for_change(revision, _LOOK_EVERY_S, stopping.is_set):
                if over():
                    return

    def prefer(self, request: Any) -> pb.PreferredAllocationResponse:
        """Answers GetPreferredAllocation."""
        chosen = [
            self._service.prefer(
                self._family, self._half, list(r.available_deviceIDs),
                list(r.must_include_deviceIDs), r.allocation_size,
            )
            for r in request.container_requests
        ]  # fmt: skip
        responses = [pb.ContainerPreferredAllocationResponse(deviceIDs=units) for units in chosen]
        return pb.PreferredAllocationResponse(container_responses=responses)

    def allocate(self, request: Any) -> pb.AllocateResponse:
        """Answers Allocate."""
        started = time.perf_counter()
        try:
            answers = [
                self._service.allocate(self._family, self._half, list(r.devices_ids))
                for r in request.container_requests
            ]
        finally:
            self._observe(self.resource, time.perf_counter() - started)
        return pb.AllocateResponse(container_responses=[_response(a) for a in answers])

    def pre_start(self, request: Any) -> pb.PreStartContainerResponse:
        """Answers PreStartContainer."""
        self._service.pre_start(self._family, self._half, list(request.devices_ids))
        return pb.PreStartContainerResponse()


class _Servicer:
    """The protocol's method names on top of a PluginServer."""

    def __init__(self, plugin: PluginServer, stopping: threading.Event) -> None:
        self._plugin = plugin
        self._stopping = stopping

    def GetDevicePluginOptions(self, request: Any, context: Any) -> Any:  # noqa: N802
        return OPTIONS

    def ListAndWatch(self, request: Any, context: Any) -> Iterator[Any]:  # noqa: N802
        return self._plugin.watch(self._stopping, context)

    def GetPreferredAllocation(self, request: Any, context: Any) -> Any:  # noqa: N802
        return self._guarded("GetPreferredAllocation", self._plugin.prefer, request, context)

    def Allocate(self, request: Any, context: Any) -> Any:  # noqa: N802
        return self._guarded("Allocate", self._plugin.allocate, request, context)

    def PreStartContainer(self, request: Any, context: Any) -> Any:  # noqa: N802
        return self._guarded("PreStartContainer", self._plugin.pre_start, request, context)

    def _guarded(
        self, method: str, handler: Callable[[Any], Any], request: Any, context: Any
    ) -> Any:
        try:
            return handler(request)
        except VgpuError as error:
            event(logging.WARNING, "refused", method=method, resource=self._plugin.resource,
                  reason=error.message)  # fmt: skip
            code, text = grpc.StatusCode.FAILED_PRECONDITION, error.message
            if error.hint:
                text += f" (hint: {error.hint})"
        except Exception as error:  # a fault of ours must not look like a dead plugin
            LOGGER.exception("%s of %s failed", method, self._plugin.resource)
            code, text = grpc.StatusCode.INTERNAL, f"the node agent failed: {error!r}"
        return context.abort(code, text)


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
    )
