"""A cluster of one node, of real parts: etcd, all of Kubernetes, containerd and runc.

As `node.real`, in namespaces of its own with the paths of a node, on simulated GPUs. Here the
kubelet has an API server, and what it runs comes from there: nothing of ours is on the node but
what the chart brings. `kubectl` and `helm` run on the node, as an administrator.
"""

import json
import shutil
import signal
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml

from support.cluster import agent_image, stand_in_agents
from support.cluster import logs as cluster_logs
from support.cluster.install import helm_program
from support.cluster.kubernetes_versions import Kubernetes
from support.cluster.parts import CONTROL_PLANE, OF_NODE, READY_S, ClusterParts
from support.node import image as node_image
from support.node.containerd import Containerd, DebiansContainerd
from support.node.init import BOOT_ID
from support.suite import surroundings
from support.waiting import wait_until

#: Kinds that tests ask for, with their group in the API.
_KINDS = {
    **dict.fromkeys(
        ("events", "namespaces", "nodes", "pods", "resourcequotas", "secrets"), "api/v1"
    ),
    **dict.fromkeys(("deployments", "statefulsets"), "apis/apps/v1"),
    **dict.fromkeys(("clusterroles", "clusterrolebindings"), "apis/rbac.authorization.k8s.io/v1"),
    "jobs": "apis/batch/v1",
    "leases": "apis/coordination.k8s.io/v1",
}
_OF_NO_NAMESPACE = {"namespaces", "nodes", "clusterroles", "clusterrolebindings"}


class RealCluster(ClusterParts):
    """A running cluster; `running_cluster` makes one."""

    def __init__(
        self,
        base: Path,
        kubernetes: Kubernetes,
        gpus: Sequence[str],
        containerd: Containerd,
        images: Sequence[Path] = (),
    ) -> None:
        """Makes the node; `start` starts what runs on it.

        Args:
            images: archives of those that the node has, besides what the kubelet and the examples
                need.
        """
        super().__init__(base, kubernetes, gpus, containerd)
        self._images = images

    def start(self) -> None:
        """Starts all parts, and waits until the node is ready."""
        self.start_control_plane()
        self.start_proxy()
        self.start_containerd()
        for archive in (node_image.pause(), node_image.client(), *self._images):
            self.import_image(archive)
        self.start_kubelet()
        wait_until(self._is_node_ready, "the node is ready", READY_S)

    def reboot(self) -> None:
        """Turns the node off and on: everything of it but the control plane begins again.

        No process of the node and of its containers is left, nor what was mounted, its interfaces,
        cgroups, packet filters and /run; what was on disk is.
        """
        self.order("reboot", keep=list(CONTROL_PLANE))
        self.running -= set(OF_NODE)
        (self.base / "sysctl" / BOOT_ID.replace("/", ".")).write_text(f"{uuid.uuid4()}\n")
        self.start_containerd()
        self.start_proxy()
        self.start_kubelet()

    def import_image(self, archive: Path) -> None:
        """Gives containerd an image."""
        imported = self.ctr("images", "import", str(archive))
        assert imported["status"] == 0, imported

    def kubectl(self, *arguments: str, status: int = 0) -> str:
        """Runs kubectl as an administrator; returns what it prints, of either kind if it fails."""
        done = self.ask(*arguments)
        assert done["status"] == status, done
        return str(done["out"] if not status else done["err"])

    def vgpu(self, *arguments: str) -> dict[str, Any]:
        """Runs ``kubectl vgpu`` as an administrator; returns ``status``, ``out`` and ``err``."""
        plugin, programs = self.base / "plugin", self.kubernetes.programs
        if not plugin.exists():
            stand_in_agents.plugin(plugin)
        path = f"{plugin}:{programs}:{self.env['PATH']}"
        variables = {"PATH": path, "KUBECONFIG": str(self.admin)}
        return self.run(str(programs / "kubectl"), "vgpu", *arguments, env=self.env | variables)

    def helm(self, *arguments: str) -> str:
        """Runs helm as an administrator; returns what it prints."""
        done = self.run(str(helm_program()), f"--kubeconfig={self.admin}", *arguments)
        assert done["status"] == 0, done
        return str(done["out"])

    def get(
        self, kind: str, name: str = "", namespace: str = "default", selector: str = ""
    ) -> dict[str, Any]:
        """Returns an object; without its name a list of all in a namespace.

        Args:
            kind: one of `_KINDS`.
            namespace: all of them where it is empty.
            selector: of labels.
        """
        group = _KINDS[kind]
        is_inside = namespace and kind not in _OF_NO_NAMESPACE
        path = [group, *(["namespaces", namespace] if is_inside else []), kind]
        query = f"?labelSelector={quote(selector)}" if selector else ""
        answer = self.api("/".join([*path, *([name] if name else [])]) + query)
        assert answer["status"] == 200, answer
        return dict(json.loads(answer["body"]))

    def apply(self, *objects: Mapping[str, Any]) -> None:
        """Applies objects."""
        file = self.base / "applied.yaml"
        file.write_text(yaml.safe_dump_all([dict(each) for each in objects]))
        self.kubectl("apply", "-f", str(file))

    def log(self, pod: str, container: str = "") -> str:
        """Returns what the present container of a pod has printed, empty without one."""
        which = [f"--container={container}"] if container else []
        return str(self.ask("logs", pod, *which)["out"])

    def said(self, pod: str) -> list[dict[str, Any]]:
        """Returns what the present sample client in a pod has printed."""
        logs = self.base.glob(f"log/pods/default_{pod}_*/*/*.log")
        present = sorted(logs, key=lambda log: (log.stat().st_mtime, int(log.stem)))[-1:]
        lines = [line.split(" ", 3)[3] for log in present for line in log.read_text().splitlines()]
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]

    def wait_said(self, pod: str, phase: str, number: int = 0) -> dict[str, Any]:
        """Waits for a line of the sample client: the ``number``-th of a phase."""

        def found() -> dict[str, Any] | None:
            lines = [line for line in self.said(pod) if line["phase"] == phase]
            return lines[number] if len(lines) > number else None

        try:
            return dict(wait_until(found, f"{pod}: {phase} {number}"))
        except AssertionError as error:
            told = self.kubectl("describe", "pod", pod)
            raise AssertionError(f"{error}\n{told}\n{self.log(pod)}") from None

    def events(self, reason: str, namespace: str = "default") -> list[str]:
        """Returns the messages of the Events of a reason."""
        items = self.get("events", namespace=namespace)["items"]
        return [each["message"] for each in items if each["reason"] == reason]

    def end_container(self, pod: str, namespace: str = "default") -> None:
        """Kills the first process of a pod's first container."""
        (status, *_) = self.get("pods", pod, namespace)["status"]["containerStatuses"]
        wanted = status["containerID"].removeprefix("containerd://")
        listed = self.ctr("tasks", "list")["out"]
        for task, pid, _ in map(str.split, listed.splitlines()):
            if task == wanted:
                self.order("signal", pid=int(pid), number=signal.SIGKILL)
                return
        raise AssertionError(f"{pod} has no task {wanted}: {listed}")

    def _is_node_ready(self) -> bool:
        items = self.get("nodes")["items"]
        return any(
            condition["type"] == "Ready" and condition["status"] == "True"
            for node in items
            for condition in node["status"].get("conditions", ())
        ) and not items[0]["spec"].get("taints")


@contextmanager
def running_cluster(
    kubernetes: Kubernetes,
    gpus: Sequence[str],
    containerd: Containerd | None = None,
    has_agent_image: bool = True,
) -> Iterator[RealCluster]:
    """A cluster that ends with the block and leaves nothing behind but logs of failures.

    The test is skipped where the image's packages are not to be had.

    Args:
        has_agent_image: whether the node has the agent's image from the beginning.

    Raises:
        AssertionError: it does not start, or the machine is not as it was before.
    """
    image = agent_image.built()
    before = surroundings.look()
    # Sockets lie below it, so its name must be short.
    base = Path(tempfile.mkdtemp(prefix="vgpu-cluster-", dir="/tmp"))
    base.chmod(0o755)
    cluster = None
    try:
        containerd = containerd or DebiansContainerd(driver=agent_image.simulated_driver())
        images = (image,) if has_agent_image else ()
        cluster = RealCluster(base, kubernetes, gpus, containerd, images)
        with cluster_logs.kept_on_failure(cluster, "start"):
            cluster.start()
        yield cluster
    finally:
        try:
            if cluster is not None and not cluster.ended:
                assert cluster.end() == 0, (base / "node.log").read_text()
        finally:
            shutil.rmtree(base)
    wait_until(lambda: not surroundings.processes_naming(base.name), "end of every process")
    changed = before ^ surroundings.look()
    assert not changed, changed
