"""The kubelet's own record of which container holds which units (podresources v1)."""

from pathlib import Path
from typing import Any

import grpc

from deviceplugin import runtime
from deviceplugin.kubelet.protos import podresources_v1_pb2 as pb
from deviceplugin.kubelet.protos import podresources_v1_pb2_grpc as rpc
from deviceplugin.model.allocations import Owner
from deviceplugin.model.units import fraction_resources
from deviceplugin.policy.pairing.podresources_listing import Listed
from libvgpu.errors import VgpuError

from .transport import dial, why

#: A listing takes milliseconds; GetPreferredAllocation waits for it while a pod is admitted.
_TIMEOUT_S = 1.0
#: The kubelet answers 100 listings a second, whoever asks, and refuses the others in these words.
#: A burst of pods asks for more, and without a listing their halves could not be told apart.
_RATE_LIMITED = "rejected by rate limit"
_PAUSE_S = 0.01


def listed_in(answer: pb.ListPodResourcesResponse, domain: str) -> list[Listed]:
    """Returns every container of an answer with the units of ours that it holds."""
    prefix, fractions = f"{domain}/", fraction_resources(domain)
    found = []
    for pod in answer.pod_resources:
        for container in pod.containers:
            units: set[str] = set()
            devices: set[tuple[str, str]] = set()
            for entry in container.devices:  # one for each NUMA node
                if entry.resource_name in fractions:
                    units.update(entry.device_ids)
                elif entry.resource_name.startswith(prefix):
                    devices.update((entry.resource_name, each) for each in entry.device_ids)
            owner = Owner(pod.namespace, pod.name, container.name)
            found.append(Listed(owner, frozenset(units), tuple(sorted(devices))))
    return found


class PodResources:
    """A connection to podresources, kept open; safe to use from several threads."""

    def __init__(self, kubelet_dir: Path, domain: str) -> None:
        """Dials lazily.

        Args:
            kubelet_dir: the kubelet's root, /var/lib/kubelet on most nodes.
            domain: of our resources; units of others are left out.
        """
        self.socket = kubelet_dir / "pod-resources" / "kubelet.sock"
        self._domain = domain
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
            answer = self._patiently()
        except grpc.RpcError as error:
            raise VgpuError(f"{self.socket} does not answer: {why(error)}") from None
        return listed_in(answer, self._domain)

    def _patiently(self) -> Any:
        deadline = runtime.monotonic() + _TIMEOUT_S
        limited: grpc.RpcError | None = None
        while True:
            left = max(0.0, deadline - runtime.monotonic())
            try:
                # A kubelet that was restarted a moment ago is waited for, not given up on.
                return self._stub.List(
                    pb.ListPodResourcesRequest(), timeout=left, wait_for_ready=True
                )
            except grpc.RpcError as error:
                if _RATE_LIMITED in why(error):
                    limited = error
                elif limited is None or error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
                    raise
                if left <= _PAUSE_S:  # the last try's own word may be no more than "too late"
                    raise limited from None
            runtime.sleep(_PAUSE_S)

    def close(self) -> None:
        """Closes the connection."""
        self._channel.close()
