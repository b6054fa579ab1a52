"""A device plugin that does as the test says, for the kubelet stand-in."""

import threading
from collections.abc import Callable, Iterator
from concurrent import futures

import grpc

from deviceplugin.kubelet.protos import deviceplugin_v1beta1_pb2 as pb
from deviceplugin.kubelet.protos import deviceplugin_v1beta1_pb2_grpc as rpc
from deviceplugin.kubelet.protos import podresources_v1_pb2 as pr
from deviceplugin.kubelet.protos import podresources_v1_pb2_grpc as pr_rpc
from deviceplugin.testing import StandInKubelet
from support.waiting import PATIENCE_S

#: What the kubelet asked: the call, the last letter of the resource, how many units.
Call = tuple[str, str, int]


class FakePlugin:
    """Offers ``units`` of one resource; ``calls`` keeps what the kubelet asked, in order."""

    def __init__(
        self,
        kubelet: StandInKubelet,
        resource: str,
        units: int,
        calls: list[Call],
        numa: Callable[[int], list[int]] = lambda unit: [0],
    ) -> None:
        self.resource, self.calls, self.kubelet = resource, calls, kubelet
        self.prefix = resource[-1]
        self.units = {f"{self.prefix}{i}": "Healthy" for i in range(units)}
        self.nodes = {f"{self.prefix}{i}": numa(i) for i in range(units)}
        self.envs: dict[str, str] = {}
        self.prefer: list[str] | None = None
        self.refuse = ""
        self.on_allocate: Callable[[], object] = lambda: None
        self.asked: list[tuple[set[str], set[str]]] = []  # what was available, what must be in it
        self.given: list[set[str]] = []
        self.changed = threading.Condition()
        self.ended = False
        self.endpoint = f"{resource.replace('/', '-')}.sock"
        self.socket = kubelet.plugin_directory / self.endpoint
        self.server = grpc.server(futures.ThreadPoolExecutor(4))
        rpc.add_DevicePluginServicer_to_server(self, self.server)  # type: ignore[no-untyped-call]
        self.server.add_insecure_port(f"unix:{self.socket}")
        self.server.start()

    def register(self, **changes: str) -> None:
        request = pb.RegisterRequest(
            version="v1beta1", endpoint=self.endpoint, resource_name=self.resource
        )
        for field, value in changes.items():
            setattr(request, field, value)
        with grpc.insecure_channel(f"unix:{self.kubelet.plugin_socket}") as channel:
            stub = rpc.RegistrationStub(channel)  # type: ignore[no-untyped-call]
            stub.Register(request, timeout=PATIENCE_S)

    def set_health(self, unit: str, health: str) -> None:
        with self.changed:
            self.units[unit] = health
            self.changed.notify_all()

    def stop(self) -> None:
        with self.changed:
            self.ended = True
            self.changed.notify_all()
        self.server.stop(grace=None).wait()

    def GetDevicePluginOptions(  # noqa: N802
        self, request: pb.Empty, context: grpc.ServicerContext
    ) -> pb.DevicePluginOptions:
        return pb.DevicePluginOptions(
            pre_start_required=True, get_preferred_allocation_available=True
        )

    def ListAndWatch(  # noqa: N802
        self, request: pb.Empty, context: grpc.ServicerContext
    ) -> Iterator[pb.ListAndWatchResponse]:
        sent: dict[str, str] = {}
        while not self.ended and context.is_active():
            with self.changed:
                if self.units != sent:
                    sent = dict(self.units)
                    devices = [
                        pb.Device(
                            ID=unit,
                            health=health,
                            topology={"nodes": [{"ID": node} for node in self.nodes[unit]]},
                        )
                        for unit, health in sent.items()
                    ]
                    yield pb.ListAndWatchResponse(devices=devices)
                self.changed.wait(0.5)  # not for ever: a test that fails must not hang at its end

    def GetPreferredAllocation(  # noqa: N802
        self, request: pb.PreferredAllocationRequest, context: grpc.ServicerContext
    ) -> pb.PreferredAllocationResponse:
        ask = request.container_requests[0]
        self.calls.append(("prefer", self.prefix, ask.allocation_size))
        self.asked.append((set(ask.available_deviceIDs), set(ask.must_include_deviceIDs)))
        wanted = ask.available_deviceIDs if self.prefer is None else self.prefer
        return pb.PreferredAllocationResponse(container_responses=[{"deviceIDs": wanted}])

    def Allocate(  # noqa: N802
        self, request: pb.AllocateRequest, context: grpc.ServicerContext
    ) -> pb.AllocateResponse:
        ids = list(request.container_requests[0].devices_ids)
        self.calls.append(("allocate", self.prefix, len(ids)))
        self.given.append(set(ids))
        self.on_allocate()
        if self.refuse:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, self.refuse)
        return pb.AllocateResponse(
            container_responses=[{"envs": {f"IDS_{self.prefix}": ",".join(ids), **self.envs}}]
        )

    def PreStartContainer(  # noqa: N802
        self, request: pb.PreStartContainerRequest, context: grpc.ServicerContext
    ) -> pb.PreStartContainerResponse:
        self.calls.append(("prestart", self.prefix, len(request.devices_ids)))
        return pb.PreStartContainerResponse()


def listed(kubelet: StandInKubelet) -> dict[str, dict[str, set[str]]]:
    with grpc.insecure_channel(f"unix:{kubelet.podresources_socket}") as channel:
        stub = pr_rpc.PodResourcesListerStub(channel)  # type: ignore[no-untyped-call]
        answer = stub.List(pr.ListPodResourcesRequest())
    return {
        p.name: {d.resource_name: set(d.device_ids) for c in p.containers for d in c.devices}
        for p in answer.pod_resources
    }
