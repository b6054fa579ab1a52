"""The kubelet's end of one device plugin: its calls, and the list of devices it streams.

`Plugin` is made inside the Registration call: it dials the plugin's socket and asks for its
options before the registration is answered, as the kubelet does. A thread then reads ListAndWatch;
each message replaces the whole list. When the stream ends, every device counts as unhealthy.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import grpc

from deviceplugin import runtime
from deviceplugin.kubelet.protos import deviceplugin_v1beta1_pb2 as pb
from deviceplugin.kubelet.protos import deviceplugin_v1beta1_pb2_grpc as rpc

_DIAL_TIMEOUT_S = 10.0
_PRE_START_TIMEOUT_S = 30.0
# The kubelet waits without limit here; a stand-in that a test or a demo runs must end.
_ALLOCATE_TIMEOUT_S = 30.0
_CHANNEL_OPTIONS = (("grpc.default_authority", "localhost"), ("grpc.enable_http_proxy", 0))


@dataclass(frozen=True, slots=True)
class DeviceState:
    """One unit as its plugin last described it."""

    device_id: str
    healthy: bool
    numa_nodes: tuple[int, ...]


class Plugin:
    """One registered plugin; made by `StandInKubelet`.

    ``devices`` is replaced as a whole by the reading thread, never changed in place, so a reader
    needs no lock. When the stream has ended nothing is asked any more: a plugin that is served
    again on the same socket must register first.
    """

    def __init__(
        self,
        resource: str,
        socket: Path,
        listed: Callable[[], None],
        lost: Callable[[], None],
    ) -> None:
        """Dials ``socket`` and reads the plugin's options.

        Args:
            listed: called after each list of devices.
            lost: called when the stream of lists has ended.

        Raises:
            grpc.RpcError: nobody answers there within 10 s.
        """
        self.resource = resource
        self.devices: dict[str, DeviceState] = {}
        self.connected = True
        self._listed, self._lost = listed, lost
        self._channel = grpc.insecure_channel(f"unix:{socket}", options=_CHANNEL_OPTIONS)
        self._stub = rpc.DevicePluginStub(self._channel)  # type: ignore[no-untyped-call]
        try:
            self.options = self._stub.GetDevicePluginOptions(
                pb.Empty(), timeout=_DIAL_TIMEOUT_S, wait_for_ready=True
            )
        except grpc.RpcError:
            self._channel.close()
            raise
        self._reader = runtime.thread(target=self._read_devices, name=f"watch {resource}")

    def start(self) -> None:
        """Begins to read the device list."""
        self._reader.start()

    def close(self) -> None:
        """Ends the connection and its thread."""
        self._channel.close()
        if self._reader.is_alive():
            self._reader.join(timeout=_DIAL_TIMEOUT_S)

    def prefer(self, available: Sequence[str], must: Sequence[str], count: int) -> list[str]:
        """Asks which ``count`` of ``available`` to take, ``must`` among them.

        Raises:
            grpc.RpcError: the plugin refused; admission fails.
            ValueError: its stream has ended.
        """
        self._check_connected()
        request = pb.PreferredAllocationRequest(
            container_requests=[
                pb.ContainerPreferredAllocationRequest(
                    available_deviceIDs=available,
                    must_include_deviceIDs=must,
                    allocation_size=count,
                )
            ]
        )
        answer = self._stub.GetPreferredAllocation(request, timeout=_ALLOCATE_TIMEOUT_S)
        responses = answer.container_responses
        return list(responses[0].deviceIDs) if responses else []

    def allocate(self, device_ids: Sequence[str]) -> pb.ContainerAllocateResponse:
        """Hands out ``device_ids`` to one container.

        Raises:
            grpc.RpcError: the plugin refused; admission fails.
            ValueError: it answered for no or several containers, or its stream has ended.
        """
        self._check_connected()
        request = pb.AllocateRequest(
            container_requests=[pb.ContainerAllocateRequest(devices_ids=device_ids)]
        )
        response: pb.AllocateResponse = self._stub.Allocate(request, timeout=_ALLOCATE_TIMEOUT_S)
        answers = response.container_responses
        if len(answers) != 1:
            raise ValueError(f"{self.resource} answered for {len(answers)} containers, asked for 1")
        return answers[0]

    def pre_start(self, device_ids: Sequence[str]) -> None:
        """Tells the plugin that a container with ``device_ids`` is about to start.

        Raises:
            grpc.RpcError: the plugin refused; the container does not start.
            ValueError: its stream has ended.
        """
        self._check_connected()
        request = pb.PreStartContainerRequest(devices_ids=device_ids)
        self._stub.PreStartContainer(request, timeout=_PRE_START_TIMEOUT_S)

    def _check_connected(self) -> None:
        if not self.connected:
            raise ValueError(f"the endpoint of {self.resource} has been stopped")

    def _read_devices(self) -> None:
        try:
            for message in self._stub.ListAndWatch(pb.Empty()):
                self.devices = {
                    device.ID: DeviceState(
                        device.ID,
                        device.health == "Healthy",
                        tuple(node.ID for node in device.topology.nodes),
                    )
                    for device in message.devices
                }
                self._listed()
        except (grpc.RpcError, ValueError):  # ValueError: the channel was closed by us
            pass
        self.connected = False
        self.devices = {
            name: DeviceState(name, False, state.numa_nodes) for name, state in self.devices.items()
        }
        self._lost()


def reason(error: Exception) -> str:
    """Returns the sentence a plugin gave with its error."""
    if isinstance(error, grpc.RpcError):
        details = error.details() if hasattr(error, "details") else ""
        return str(details or error.code())
    return str(error)
