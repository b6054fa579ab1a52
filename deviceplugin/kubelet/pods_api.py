"""The kubelet's own word on the pods of its node: its Pods API, v1alpha1 (on by default from 1.37).

It lists a pod from the moment it knows it, so also while it admits it, but its watch tells of one
only after that. So it is listed, when a pod is under admission that is not known yet, and not
followed. Used where the API server cannot be asked.
"""

import contextlib
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc

from deviceplugin import runtime
from deviceplugin.kube import pod_wire
from deviceplugin.kube.node_pods import PodTable
from deviceplugin.kubelet.protos import pods_v1alpha1_pb2 as pb
from deviceplugin.kubelet.protos import pods_v1alpha1_pb2_grpc as rpc
from deviceplugin.policy.pairing.bound_pods import BoundPods

from .transport import dial, why


class PodsApi:
    """The pods as the kubelet lists them; safe to use from several threads.

    Attributes:
        problem: why the last list failed; empty where it did not, or there was none.
    """

    def __init__(self, kubelet_dir: Path, node: str, domain: str) -> None:
        """Dials lazily.

        Args:
            kubelet_dir: the kubelet's root, /var/lib/kubelet on most nodes.
            domain: of our resources.
        """
        self.socket = kubelet_dir / "pods-api" / "pods-api.sock"
        self.problem = ""
        self._table, self._domain = PodTable(node), domain
        self._channel = dial(self.socket)
        self._stub = rpc.PodsStub(self._channel)  # type: ignore[no-untyped-call]
        self._listing = runtime.lock()

    @property
    def is_there(self) -> bool:
        """The kubelet serves it."""
        return self.socket.exists()

    def seen(self) -> BoundPods:
        """Returns what was listed last."""
        return self._table.seen(self.is_there)

    def wait(self, until: Callable[[BoundPods], bool], timeout_s: float) -> BoundPods:
        """Lists the pods and returns what is known then; the time is that of the kubelet."""
        with self._listing:
            try:
                answer = self._stub.ListPods(pb.ListPodsRequest(), timeout=timeout_s)
            except grpc.RpcError as error:
                self.problem = f"{self.socket} does not answer: {why(error)}"
            else:
                self.problem = ""
                wire = (_pod(each, self._domain) for each in answer.pods)
                self._table.replace(pod_wire.row_of(pod, self._domain) for pod in wire)
        return self.seen()

    def hurry(self) -> None:
        """Does nothing: each wait asks by itself."""

    def close(self) -> None:
        """Closes the connection."""
        self._channel.close()


def _pod(pod: Any, domain: str) -> pod_wire.Pod:
    """Returns the pod as the API server would tell it, of which the form is the same."""
    metadata, spec, status = pod.metadata, pod.spec, pod.status
    created = None
    if metadata.HasField("creation_timestamp"):
        with contextlib.suppress(ValueError, OverflowError, OSError):  # seconds of no year
            created = datetime.fromtimestamp(metadata.creation_timestamp.seconds, UTC).isoformat()
    return pod_wire.Pod(
        pod_wire.PodMetadata(
            name=metadata.name,
            namespace=metadata.namespace,
            uid=metadata.uid,
            creation_timestamp=created,
            annotations={
                key: value
                for key, value in metadata.annotations.items()
                if key.startswith(f"{domain}/")
            },
        ),
        pod_wire.PodSpec(
            node_name=spec.node_name,
            containers=[_container(each, domain) for each in spec.containers],
            init_containers=[_container(each, domain) for each in spec.init_containers],
        ),
        pod_wire.PodStatus(
            phase=status.phase,
            start_time=str(status.start_time.seconds) if status.HasField("start_time") else None,
        ),
    )


def _container(container: Any, domain: str) -> pod_wire.Container:
    limits: dict[str, str | int] = {
        key: quantity.string
        for key, quantity in container.resources.limits.items()
        if key.startswith(f"{domain}/")
    }
    return pod_wire.Container(
        name=container.name,
        resources=pod_wire.Resources(limits=limits),
        restart_policy=container.restart_policy or None,
    )
