"""The kubelet's own record of which container holds which units (podresources v1)."""

from pathlib import Path

import grpc

from deviceplugin.holdings import Owner
from deviceplugin.kubelet.protos import podresources_v1_pb2 as pb
from deviceplugin.kubelet.protos import podresources_v1_pb2_grpc as rpc
from deviceplugin.tracking import Listed
from libvgpu.errors import VgpuError

from .transport import dial, why

#: A listing takes milliseconds; GetPreferredAllocation waits for it while a pod is admitted.
_TIMEOUT_S = 1.0


class PodResources:
    """A connection to podresources, kept open; safe to use from several threads."""

    def __init__(self, kubelet_dir: Path, domain: str) -> None:
        """Dials lazily.

        Args:
            kubelet_dir: the kubelet's root, /var/lib/kubelet on most nodes.
            domain: of our resources; units of others are left out.
        """
        self.socket = kubelet_dir / "pod-resources" / "kubelet.sock"
        self._prefix = domain + "/"
        self._channel = dial(self.socket)
        self._stub = rpc.PodResourcesListerStub(self._channel)  # type: ignore[no-untyped-call]

    def list(self) -> list[Listed]:
        """Returns every active container with the units of ours that it holds.

        Raises:
            VgpuError: the kubelet does not answer in time.
        """
        if not self.socket.exists():
            raise VgpuError(f"{self.socket} is not there")
        try:
            # A kubelet that was restarted a moment ago is waited for, not given up on.
            answer = self._stub.List(
                pb.ListPodResourcesRequest(), timeout=_TIMEOUT_S, wait_for_ready=True
            )
        except grpc.RpcError as error:
            raise VgpuError(f"{self.socket} does not answer: {why(error)}") from None
        return [
            Listed(
                Owner(pod.namespace, pod.name, container.name),
                # The kubelet gives one entry per NUMA node; they are added up here.
                frozenset(
                    unit
                    for devices in container.devices
                    if devices.resource_name.startswith(self._prefix)
                    for unit in devices.device_ids
                ),
            )
            for pod in answer.pod_resources
            for container in pod.containers
        ]

    def close(self) -> None:
        """Closes the connection."""
        self._channel.close()
