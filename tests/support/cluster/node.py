"""A node of a real control plane: the agent as its users start it, and a kubelet of our own.

The kubelet stand-in admits what is bound to the node, as a kubelet does: pod by pod in the order of
their creation; says in the pod's status what became of it, and in the Node's what it counts. It
runs no container; a pod that is deleted ends at once.
"""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from deviceplugin.testing import AdmissionFailed, AdmittedPod
from deviceplugin.testing.pods import parse_pod
from support.cluster.control_plane import ControlPlane, ready_node
from support.node.simulated import SimulatedNode
from support.suite.leftovers import MARK

_LOOK_EVERY_S = 0.05
#: The service account's directory is where a pod has it; there is no pod here.
_AS_ACCOUNT = """
import pathlib, sys
from deviceplugin.kube.api_client import ApiServer
ApiServer.from_environment.__func__.__defaults__ = (pathlib.Path({account!r}),)
from {package}.__main__ import main
main()
"""


def program_as(account: Path, package: str) -> tuple[str, str]:
    """Returns what Python runs as a program that has a service account.

    Args:
        account: its directory.
        package: with a ``__main__``.
    """
    return "-c", _AS_ACCOUNT.format(account=str(account), package=package)


class ClusterNode:
    """One node.

    Attributes:
        refusals: what the agent refused, as the pods' status says it, in order.
        placed: UUIDs that each running container was told of, by pod and container.
    """

    def __init__(
        self,
        plane: ControlPlane,
        account: Path,
        base: Path,
        name: str,
        spec: str,
        config: str,
        resources: Sequence[str],
    ) -> None:
        """Starts the agent, makes the Node, and admits what is bound to it from now on.

        Args:
            account: of the agent.
            base: an empty directory with a short name.
            spec: of its simulated machine.
            config: of the agent.
            resources: that it offers by that.
        """
        self.name, self._plane = name, plane
        self.simulated = SimulatedNode(
            base, spec, config, resources, [f"--node-name={name}"],
            plane.environment() | {MARK: ""},  # it serves all tests of a module
            program_as(account, "deviceplugin"),
        )  # fmt: skip
        self.refusals: list[str] = []
        self.placed: dict[tuple[str, str], list[str]] = {}
        self._known: dict[str, AdmittedPod | None] = {}
        self._allocatable = self.simulated.kubelet.allocatable()
        plane.apply("/api/v1/nodes", ready_node(name, self._allocatable))
        self._stopping = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends kubelet and agent; the Node stays.

        Raises:
            BaseException: what went wrong in its thread.
        """
        self._stopping.set()
        self._thread.join()
        self.simulated.close()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            while not self._stopping.wait(_LOOK_EVERY_S):
                self._look()
        except BaseException as error:
            self._failure = error

    def _look(self) -> None:
        found = self._plane.find(f"/api/v1/pods?fieldSelector=spec.nodeName={self.name}")
        assert found is not None
        pods = sorted(found["items"], key=lambda pod: pod["metadata"]["creationTimestamp"])
        for pod in pods:
            uid = pod["metadata"]["uid"]
            if pod["metadata"].get("deletionTimestamp"):
                self._end(pod)
            elif uid not in self._known:
                self._known[uid] = self._admit(pod)
        gone = self._known.keys() - {pod["metadata"]["uid"] for pod in pods}
        for uid in gone:
            self._finish(uid)
        allocatable = self.simulated.kubelet.allocatable()
        if allocatable != self._allocatable:
            self._allocatable = allocatable
            amounts = {key: str(value) for key, value in allocatable.items()}
            status = {"allocatable": amounts, "capacity": amounts}
            self._plane.patch(f"/api/v1/nodes/{self.name}/status", {"status": status})

    def _admit(self, pod: dict[str, Any]) -> AdmittedPod | None:
        kubelet = self.simulated.kubelet
        name = pod["metadata"]["name"]
        manifest = parse_pod({"apiVersion": "v1", "kind": "Pod", **pod}, name)
        try:
            admitted = kubelet.admit(manifest)
            for container in (*manifest.init_containers, *manifest.containers):
                told = kubelet.run_options(admitted, container.name).envs
                uuids = told.get("NVIDIA_VISIBLE_DEVICES", "")
                self.placed[name, container.name] = uuids.split(",")
        except AdmissionFailed as error:
            self.refusals.append(str(error))
            failed = {"phase": "Failed", "reason": "UnexpectedAdmissionError"}
            self._say(pod, failed | {"message": str(error)[:1000]})
            return None
        self._say(pod, {"phase": "Running"})
        return admitted

    def _end(self, pod: dict[str, Any]) -> None:
        self._finish(pod["metadata"]["uid"])
        self._plane.delete(_path(pod), gracePeriodSeconds=0)

    def _finish(self, uid: str) -> None:
        admitted = self._known.pop(uid, None)
        if admitted is not None:
            self.simulated.kubelet.finish(admitted)

    def _say(self, pod: dict[str, Any], status: dict[str, Any]) -> None:
        self._plane.patch(f"{_path(pod)}/status", {"status": status})


def _path(pod: dict[str, Any]) -> str:
    metadata = pod["metadata"]
    return f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
