"""The processes of a cluster of one node: etcd, all of Kubernetes, containerd."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from libvgpu.sim import PROFILES, Machine
from support.cluster import identities as cluster_identities
from support.cluster.identities import ADMIN, PORT, token
from support.cluster.kubernetes_versions import Kubernetes
from support.node import settings as node_settings
from support.node.containerd import Containerd
from support.node.host import NodeHost
from support.node.init import ADDRESS, HOST_NAME
from support.waiting import wait_until

#: What goes on when the node is turned off: in a larger cluster it is on other machines.
CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
OF_NODE = ("containerd", "kube-proxy", "kubelet")
READY_S = 90.0
_SERVICES, _DNS = "10.96.0.0/16", "10.96.0.10"
_PODS = "10.214.0.0/24"  # as in `node.settings`


class ClusterParts(NodeHost):
    """A node, and how each part is started on it.

    Attributes:
        machine: with the simulated GPUs.
        admin: an administrator's kubeconfig.
        kubernetes: the version that all parts have.
        containerd: the directory of containerd's programs.
    """

    def __init__(
        self, base: Path, kubernetes: Kubernetes, gpus: Sequence[str], containerd: Containerd
    ) -> None:
        """Makes the node; nothing runs on it yet.

        Args:
            base: an empty directory with a short name.
            gpus: profiles of the simulated machine.
        """
        self.machine = Machine.create([PROFILES[gpu] for gpu in gpus], base / "machine")
        # Nobody answers there; without an address every pod would get a warning.
        dns = {"clusterDNS": [_DNS], "clusterDomain": "cluster.local"}
        node_settings.write(base, dns, kubernetes.lacks)
        super().__init__(base)
        containerd.write(self.inside("/etc"), base, self.machine.directory)
        self.containerd, self.kubernetes = containerd.programs, kubernetes
        self.admin = cluster_identities.kubeconfig(base, ADMIN)

    def start_control_plane(self) -> None:
        """Starts what is not of the node, and waits until the API server is ready."""
        base = self.base
        cluster_identities.write(base)
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
            f"--service-cluster-ip-range={_SERVICES}",
            "--kubelet-preferred-address-types=InternalIP",
        )  # fmt: skip
        wait_until(self._is_api_ready, "the API server is ready", READY_S)
        self._start_part(
            "kube-controller-manager",
            f"--kubeconfig={self._kubeconfig('kube-controller-manager')}",
            "--use-service-account-credentials=true",
            f"--service-account-private-key-file={base / 'api.key'}",
            f"--root-ca-file={base / 'api.crt'}", "--leader-elect=false", "--secure-port=0",
            f"--flex-volume-plugin-dir={base / 'volume-plugins'}",
        )  # fmt: skip
        self.start_scheduler({})

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

    def start_proxy(self) -> None:
        """Starts kube-proxy."""
        config = {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": "iptables",
            "clusterCIDR": _PODS,
            "hostnameOverride": HOST_NAME,
            "clientConnection": {"kubeconfig": str(self._kubeconfig("kube-proxy"))},
            "conntrack": {"maxPerCore": 0, "tcpEstablishedTimeout": "0s",
                          "tcpCloseWaitTimeout": "0s"},
        }  # fmt: skip
        (self.base / "proxy.json").write_text(json.dumps(config))
        self._start_part("kube-proxy", f"--config={self.base / 'proxy.json'}")

    def start_containerd(self) -> None:
        """Starts containerd and waits until it answers."""
        self.start_process(
            "containerd",
            [f"{self.containerd}/containerd"],
            self.env | {"PATH": f"{self.containerd}:{self.env['PATH']}"},  # has its shim
        )
        wait_until(lambda: self.ctr("version")["status"] == 0, "containerd")

    def start_kubelet(self) -> None:
        """Starts the kubelet."""
        self.start_process(
            "kubelet",
            [str(self.kubernetes.programs / "kubelet"), f"--config={self.base / 'kubelet.yaml'}",
             f"--kubeconfig={self._kubeconfig('kubelet')}", f"--hostname-override={HOST_NAME}",
             f"--node-ip={ADDRESS}", "--node-labels=nvidia.com/gpu.present=true", "--v=2"],
            again=True,
        )  # fmt: skip

    def ctr(self, *arguments: str) -> dict[str, Any]:
        """Runs containerd's tool on the containers of the kubelet."""
        address = ("-a", "/run/containerd/containerd.sock", "-n", "k8s.io")
        return self.run(f"{self.containerd}/ctr", *address, *arguments)

    def ask(self, *arguments: str) -> dict[str, Any]:
        """Runs kubectl as an administrator; returns ``status``, ``out`` and ``err``."""
        kubectl = str(self.kubernetes.programs / "kubectl")
        return self.run(kubectl, f"--kubeconfig={self.admin}", *arguments)

    def api(self, path: str) -> dict[str, Any]:
        """Asks the API server as an administrator; returns ``status`` and ``body``."""
        return self.order("get", url=f"https://{ADDRESS}:{PORT}/{path}", token=token(ADMIN),
                          authority=str(self.base / "api.crt"))  # fmt: skip

    def _start_part(self, name: str, *arguments: str) -> None:
        self.start_process(name, [str(self.kubernetes.programs / name), *arguments])

    def _kubeconfig(self, part: str) -> Path:
        return cluster_identities.kubeconfig(self.base, part)

    def _is_api_ready(self) -> bool:
        return bool(self.api("readyz")["status"] == 200)
