"""A cluster of one node, of real parts: etcd, all of Kubernetes, containerd and runc.

As `real_node`, in namespaces of its own with the paths of a node, on simulated GPUs. Here the
kubelet has an API server, and what it runs comes from there: nothing of ours is on the node but
what the chart brings. `kubectl` and `helm` run on the node, as an administrator.
"""

import csv
import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from libvgpu.sim import PROFILES, Machine

from . import node_image, node_parts, node_settings, stand_in_agents, surroundings
from .install import helm_program
from .kubernetes_versions import Kubernetes
from .node_containerd import Containerd, DebiansContainerd
from .node_host import NodeHost
from .node_init import ADDRESS, HOST_NAME
from .real_node import EXAMPLES
from .waiting import wait_until

PORT = 6443
SERVICES, API_SERVICE, DNS = "10.96.0.0/16", "10.96.0.1", "10.96.0.10"
PODS = "10.214.0.0/24"  # as in `node_settings`
#: What each part is to the API server: user and groups.
_USERS = {
    "admin": ("admin", "system:masters"),
    "kube-controller-manager": ("system:kube-controller-manager", ""),
    "kube-scheduler": ("system:kube-scheduler", ""),
    "kube-proxy": ("system:kube-proxy", ""),
    "kubelet": (f"system:node:{HOST_NAME}", "system:nodes"),
}
_READY_S = 90.0


class RealCluster(NodeHost):
    """A running cluster; `running_cluster` makes one.

    Attributes:
        machine: with the simulated GPUs.
        admin: an administrator's kubeconfig.
    """

    def __init__(
        self, base: Path, kubernetes: Kubernetes, gpus: Sequence[str], containerd: Containerd
    ) -> None:
        """Makes the node; `start` starts what runs on it.

        Args:
            base: an empty directory with a short name.
            gpus: profiles of the simulated machine.
        """
        self.machine = Machine.create([PROFILES[gpu] for gpu in gpus], base / "machine")
        # Nobody answers there; without an address every pod would get a warning.
        dns = {"clusterDNS": [DNS], "clusterDomain": "cluster.local"}
        node_settings.write(base, dns, kubernetes.lacks)
        super().__init__(base)
        containerd.write(self.inside("/etc"), base, self.machine.directory)
        self._containerd, self._kubernetes = containerd.programs, kubernetes
        self._plane = kubernetes.programs
        self._helm = helm_program()
        self.admin = base / "admin.kubeconfig"

    def start(self) -> None:
        """Starts all parts, and waits until the node is ready."""
        self._write_identities()
        self._start_control_plane()
        self.start_process(
            "containerd",
            [f"{self._containerd}/containerd"],
            self.env | {"PATH": f"{self._containerd}:{self.env['PATH']}"},  # has its shim
        )
        node_image.write_pause(self.base / "pause.tar", node_parts.build() / "pause")
        node_image.write_client(self.base / "client.tar", EXAMPLES / "client/client.py")
        wait_until(lambda: self.ctr("version")["status"] == 0, "containerd")
        node_image.write_agent(self.base / "agent.tar")
        for name in ("pause", "client", "agent"):
            self.import_image(self.base / f"{name}.tar")
        self.start_kubelet()
        wait_until(self._is_node_ready, "the node is ready", _READY_S)

    def start_kubelet(self) -> None:
        """Starts the kubelet."""
        self.start_process(
            "kubelet",
            [str(self._kubernetes.kubelet), f"--config={self.base / 'kubelet.yaml'}",
             f"--kubeconfig={self._kubeconfig('kubelet')}", f"--hostname-override={HOST_NAME}",
             f"--node-ip={ADDRESS}", "--node-labels=nvidia.com/gpu.present=true", "--v=2"],
        )  # fmt: skip

    def ctr(self, *arguments: str) -> dict[str, Any]:
        """Runs containerd's tool on the containers of the kubelet."""
        address = ("-a", "/run/containerd/containerd.sock", "-n", "k8s.io")
        return self.run(f"{self._containerd}/ctr", *address, *arguments)

    def import_image(self, archive: Path) -> None:
        """Gives containerd an image."""
        imported = self.ctr("images", "import", str(archive))
        assert imported["status"] == 0, imported

    def kubectl(self, *arguments: str, status: int = 0) -> str:
        """Runs kubectl as an administrator; returns what it prints, of either kind if it fails."""
        done = self.run(str(self._plane / "kubectl"), f"--kubeconfig={self.admin}", *arguments)
        assert done["status"] == status, done
        return str(done["out"] if not status else done["err"])

    def vgpu(self, *arguments: str) -> dict[str, Any]:
        """Runs ``kubectl vgpu`` as an administrator; returns ``status``, ``out`` and ``err``."""
        plugin = self.base / "plugin"
        if not plugin.exists():
            stand_in_agents.plugin(plugin)
        path = f"{plugin}:{self._plane}:{self.env['PATH']}"
        variables = {"PATH": path, "KUBECONFIG": str(self.admin)}
        return self.run(str(self._plane / "kubectl"), "vgpu", *arguments, env=self.env | variables)

    def helm(self, *arguments: str) -> str:
        """Runs helm as an administrator; returns what it prints."""
        done = self.run(str(self._helm), f"--kubeconfig={self.admin}", *arguments)
        assert done["status"] == 0, done
        return str(done["out"])

    def get(self, *arguments: str) -> dict[str, Any]:
        """Returns an object or a list of them."""
        return dict(json.loads(self.kubectl("get", *arguments, "-o", "json")))

    def apply(self, *objects: Mapping[str, Any]) -> None:
        """Applies objects."""
        file = self.base / "applied.yaml"
        file.write_text(yaml.safe_dump_all([dict(each) for each in objects]))
        self.kubectl("apply", "-f", str(file))

    def log(self, pod: str, container: str = "") -> str:
        """Returns what the present container of a pod has printed, empty without one."""
        which = [f"--container={container}"] if container else []
        done = self.run(
            str(self._plane / "kubectl"), f"--kubeconfig={self.admin}", "logs", pod, *which
        )
        return str(done["out"])

    def said(self, pod: str) -> list[dict[str, Any]]:
        """Returns what the sample client in a pod has printed."""
        lines = self.log(pod).splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

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
        items = self.get("events", f"--namespace={namespace}")["items"]
        return [each["message"] for each in items if each["reason"] == reason]

    def last_words_of_parts(self, lines: int = 20) -> str:
        """Returns the end of every part's log, for the message of a failure."""
        return "\n".join(
            f"--- {log.stem}\n" + "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
            for log in sorted(self.base.glob("*.log"))
        )

    # ---- its parts -------------------------------------------------------------------------------

    def _write_identities(self) -> None:
        """Writes the API server's certificate, which is its own authority, tokens, kubeconfigs."""
        names = f"IP:{ADDRESS},IP:{API_SERVICE},IP:127.0.0.1,DNS:kubernetes.default.svc"
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
             "-subj", "/CN=api", "-addext", f"subjectAltName={names}",
             "-keyout", str(self.base / "api.key"), "-out", str(self.base / "api.crt")],
            check=True, capture_output=True, timeout=60,
        )  # fmt: skip
        with open(self.base / "tokens.csv", "w", newline="") as file:
            rows = ((f"token-of-{part}", user, f"uid-{part}", groups)
                    for part, (user, groups) in _USERS.items())  # fmt: skip
            csv.writer(file).writerows(rows)
        for part in _USERS:
            self._kubeconfig(part).write_text(json.dumps({
                "apiVersion": "v1", "kind": "Config", "current-context": "here",
                "clusters": [{"name": "here", "cluster": {
                    "server": f"https://{ADDRESS}:{PORT}",
                    "certificate-authority": str(self.base / "api.crt")}}],
                "users": [{"name": part, "user": {"token": f"token-of-{part}"}}],
                "contexts": [{"name": "here", "context": {"cluster": "here", "user": part}}],
            }))  # fmt: skip

    def _kubeconfig(self, part: str) -> Path:
        return self.base / f"{part}.kubeconfig"

    def _start_control_plane(self) -> None:
        base = self.base
        self.start_process(
            "etcd",
            ["etcd", f"--data-dir={base / 'etcd-data'}", "--unsafe-no-fsync",
             "--listen-client-urls=http://127.0.0.1:2379",
             "--advertise-client-urls=http://127.0.0.1:2379"],
        )  # fmt: skip
        self._start_part(
            "kube-apiserver", "--etcd-servers=http://127.0.0.1:2379",
            f"--bind-address={ADDRESS}", f"--advertise-address={ADDRESS}",
            f"--secure-port={PORT}", f"--cert-dir={base / 'certificates'}",
            f"--tls-cert-file={base / 'api.crt'}", f"--tls-private-key-file={base / 'api.key'}",
            f"--token-auth-file={base / 'tokens.csv'}", "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction", "--allow-privileged=true",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={base / 'api.key'}",
            f"--service-account-signing-key-file={base / 'api.key'}",
            f"--service-cluster-ip-range={SERVICES}",
            "--kubelet-preferred-address-types=InternalIP",
        )  # fmt: skip
        wait_until(lambda: self._is_api_ready(), "the API server is ready", _READY_S)
        self._start_part(
            "kube-controller-manager",
            f"--kubeconfig={self._kubeconfig('kube-controller-manager')}",
            "--use-service-account-credentials=true",
            f"--service-account-private-key-file={base / 'api.key'}",
            f"--root-ca-file={base / 'api.crt'}", "--leader-elect=false", "--secure-port=0",
            f"--flex-volume-plugin-dir={base / 'volume-plugins'}",
        )  # fmt: skip
        self.start_scheduler({})
        self._start_proxy()

    def start_scheduler(self, config: Mapping[str, Any]) -> None:
        """Starts kube-scheduler.

        Args:
            config: what a KubeSchedulerConfiguration has besides how the API server is reached.
        """
        whole = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False},
            "clientConnection": {"kubeconfig": str(self._kubeconfig("kube-scheduler"))},
            **config,
        }
        (self.base / "scheduler.json").write_text(json.dumps(whole))
        self._start_part(
            "kube-scheduler", f"--config={self.base / 'scheduler.json'}", "--secure-port=0"
        )

    def _start_proxy(self) -> None:
        config = {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": "iptables",
            "clusterCIDR": PODS,
            "hostnameOverride": HOST_NAME,
            "clientConnection": {"kubeconfig": str(self._kubeconfig("kube-proxy"))},
            "conntrack": {"maxPerCore": 0, "tcpEstablishedTimeout": "0s",
                          "tcpCloseWaitTimeout": "0s"},
        }  # fmt: skip
        (self.base / "proxy.json").write_text(json.dumps(config))
        self._start_part("kube-proxy", f"--config={self.base / 'proxy.json'}")

    def _start_part(self, name: str, *arguments: str) -> None:
        self.start_process(name, [str(self._plane / name), *arguments])

    def _is_api_ready(self) -> bool:
        asked = self.run(
            str(self._plane / "kubectl"), f"--kubeconfig={self.admin}", "get", "--raw", "/readyz"
        )
        return bool(asked["status"] == 0)

    def _is_node_ready(self) -> bool:
        items = self.get("nodes")["items"]
        return any(
            condition["type"] == "Ready" and condition["status"] == "True"
            for node in items
            for condition in node["status"].get("conditions", ())
        ) and not items[0]["spec"].get("taints")


@contextmanager
def running_cluster(
    kubernetes: Kubernetes, gpus: Sequence[str], containerd: Containerd | None = None
) -> Iterator[RealCluster]:
    """A cluster that ends with the block and leaves nothing behind.

    Raises:
        AssertionError: it does not start, or the machine is not as it was before.
    """
    before = surroundings.look()
    # Sockets lie below it, so its name must be short.
    base = Path(tempfile.mkdtemp(prefix="vgpu-cluster-", dir="/tmp"))
    base.chmod(0o755)
    cluster = None
    try:
        cluster = RealCluster(base, kubernetes, gpus, containerd or DebiansContainerd())
        try:
            cluster.start()
        except AssertionError as error:
            raise AssertionError(f"{error}\n{cluster.last_words_of_parts()}") from None
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
