"""A control plane of real parts: etcd, kube-apiserver and kube-scheduler as plain processes.

They listen on ports of 127.0.0.1 that were free a moment ago, keep everything below a directory of
the caller's, and end with it. Nobody needs root. Nodes, kubelets and controllers there are none but
those that the test brings.
"""

import csv
import json
import os
import shutil
import ssl
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx2

from deviceplugin.kube.api_client import ApiServer
from support.cluster import kubernetes_versions
from support.ports import held_port
from support.suite.leftovers import MARK
from support.waiting import wait_until

PACKAGES = "deploy/dev/install-prerequisites.sh node"
_NEEDED = ("etcd", "openssl")
#: Parts serve all tests of a module, so no single test is to end them (`leftovers`).
UNMARKED = {name: value for name, value in os.environ.items() if name != MARK}
_ADMIN, _TIMEOUT_S, _STOP_S = "admin", 20.0, 10.0
_MERGE = "application/merge-patch+json"


def missing() -> str:
    """Returns as a sentence what keeps a control plane from running, empty if nothing does."""
    lacking = [name for name in _NEEDED if shutil.which(name) is None]
    if lacking:
        return f"{', '.join(lacking)} not there; as root: sh {PACKAGES}"
    return kubernetes_versions.programs().missing()


class ControlPlane:
    """etcd and kube-apiserver, and a kube-scheduler once it is told how.

    Attributes:
        base: where logs and everything else is.
        port: of the API server.
        certificate: PEM of who signed its certificate, which is itself.
        key: of that certificate.
    """

    def __init__(self, base: Path, programs: Path) -> None:
        """Starts nothing yet.

        Args:
            base: an empty directory.
            programs: of `kubernetes_versions.build`.
        """
        self.base, self._programs = base, programs
        self.port = held_port()
        self.certificate, self.key = base / "api.crt", base / "api.key"
        self._tokens = {_ADMIN: (_ADMIN, "system:masters")}
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._http: httpx2.Client | None = None

    def account(self, namespace: str, name: str) -> Path:
        """Returns the directory of a service account that a pod would have; before `start`."""
        token = f"token-of-{namespace}-{name}"
        user = f"system:serviceaccount:{namespace}:{name}"
        self._tokens[token] = user, f"system:serviceaccounts,system:serviceaccounts:{namespace}"
        return self._account_directory(f"{namespace}-{name}", namespace, token)

    def agents_account(self, namespace: str, name: str, node: str) -> Path:
        """Returns the directory of a service account as a pod on a node has it; after `start`.

        Its token names the pod and with it the node, as that of a kubelet does. Neither the pod nor
        the Node has to run. The account must be there.
        """
        accounts = f"/api/v1/namespaces/{namespace}"
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"{name}-{node}"},
            "spec": {
                "serviceAccountName": name,
                "nodeName": node,
                "containers": [{"name": "agent", "image": "i"}],
            },
        }
        made = self.apply(f"{accounts}/pods", pod)
        of = {"apiVersion": "v1", "kind": "Pod", "name": f"{name}-{node}"}
        asked = {"spec": {"boundObjectRef": of | {"uid": made["metadata"]["uid"]}}}
        token = self.apply(f"{accounts}/serviceaccounts/{name}/token", asked)["status"]["token"]
        return self._account_directory(f"{namespace}-{name}-{node}", namespace, token)

    def _account_directory(self, name: str, namespace: str, token: str) -> Path:
        directory = self.base / f"account-{name}"
        directory.mkdir()
        (directory / "token").write_text(token)
        (directory / "namespace").write_text(namespace)
        (directory / "ca.crt").symlink_to(self.certificate)
        return directory

    def environment(self) -> dict[str, str]:
        """Returns the variables by which a pod finds the API server."""
        return {
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": str(self.port),
        }

    def start(self) -> None:
        """Starts etcd and the API server, and waits until it is ready."""
        etcd, peer = held_port(), held_port()
        self._make_keys()
        with open(self.base / "tokens.csv", "w", newline="") as file:
            csv.writer(file).writerows(
                (token, user, f"uid-{user}", groups)
                for token, (user, groups) in self._tokens.items()
            )
        self._start(
            "etcd",
            "etcd",
            f"--data-dir={self.base / 'etcd'}",
            "--unsafe-no-fsync",
            f"--listen-client-urls=http://127.0.0.1:{etcd}",
            f"--advertise-client-urls=http://127.0.0.1:{etcd}",
            f"--listen-peer-urls=http://127.0.0.1:{peer}",
            f"--initial-advertise-peer-urls=http://127.0.0.1:{peer}",
            f"--initial-cluster=default=http://127.0.0.1:{peer}",
        )
        self._start(
            "kube-apiserver",
            str(self._programs / "kube-apiserver"),
            f"--etcd-servers=http://127.0.0.1:{etcd}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self.port}",
            f"--cert-dir={self.base / 'certificates'}",
            f"--tls-cert-file={self.certificate}",
            f"--tls-private-key-file={self.key}",
            f"--token-auth-file={self.base / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--allow-privileged=true",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self.key}",
            f"--service-account-signing-key-file={self.key}",
            "--service-cluster-ip-range=10.0.0.0/24",
            # Nobody here makes service accounts, or takes the taint of a new node away.
            "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
        )
        self._http = self.client(_ADMIN)
        wait_until(self._is_ready, "the API server is ready")
        wait_until(lambda: self.find("/api/v1/namespaces/default"), "namespace default")

    def start_scheduler(self, config: Mapping[str, Any]) -> None:
        """Starts the scheduler.

        Args:
            config: a KubeSchedulerConfiguration; how the API server is reached is added.
        """
        kubeconfig = self.base / "kubeconfig"
        kubeconfig.write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "here",
            "clusters": [{"name": "here", "cluster": {
                "server": f"https://127.0.0.1:{self.port}",
                "certificate-authority": str(self.certificate)}}],
            "users": [{"name": "admin", "user": {"token": _ADMIN}}],
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": "admin"}}],
        }))  # fmt: skip
        file = self.base / "scheduler.json"
        whole = {
            **config,
            "leaderElection": {"leaderElect": False},
            "clientConnection": {"kubeconfig": str(kubeconfig), "qps": 500, "burst": 1000},
        }
        file.write_text(json.dumps(whole))
        self._start(
            "kube-scheduler",
            str(self._programs / "kube-scheduler"),
            f"--config={file}",
            "--secure-port=0",
            "--v=3",
        )

    def client(self, token: str) -> httpx2.Client:
        """Returns what asks the API server as whoever has a token does."""
        return httpx2.Client(
            base_url=f"https://127.0.0.1:{self.port}",
            headers={"Authorization": f"Bearer {token}"},
            verify=ssl.create_default_context(cafile=self.certificate),
            timeout=_TIMEOUT_S,
            trust_env=False,
        )

    def api(self, account: Path) -> ApiServer:
        """Returns the API server as a pod with that account reaches it."""
        found = ApiServer.from_environment(self.environment(), account)
        assert found is not None
        return found

    def apply(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Creates an object in a collection."""
        return self._answer("POST", path, body)

    def patch(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Merges into an object, or its status."""
        return self._answer("PATCH", path, body, _MERGE)

    def delete(self, path: str, **options: Any) -> None:
        """Deletes an object."""
        self._answer("DELETE", path, options)

    def find(self, path: str) -> dict[str, Any] | None:
        """Returns an object or a list, None where there is none."""
        assert self._http is not None
        answer = self._http.get(path)
        return answer.json() if answer.is_success else None

    def last_words(self, lines: int = 25) -> str:
        """Returns the end of every part's log, for the message of a failure."""
        return "\n".join(
            f"--- {name}\n" + "\n".join(self._log(name).read_text().splitlines()[-lines:])
            for name in self._running
        )

    def stop(self) -> None:
        """Ends all parts."""
        if self._http is not None:
            self._http.close()
        for process in reversed(self._running.values()):
            process.terminate()
        for process in reversed(self._running.values()):
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _is_ready(self) -> bool:
        for name, process in self._running.items():
            assert process.poll() is None, f"{name} ended\n{self.last_words()}"
        assert self._http is not None
        try:
            return self._http.get("/readyz").is_success
        except httpx2.HTTPError:
            return False

    def _answer(
        self, method: str, path: str, body: Mapping[str, Any], kind: str = "application/json"
    ) -> dict[str, Any]:
        assert self._http is not None
        answer = self._http.request(
            method, path, content=json.dumps(body), headers={"Content-Type": kind}
        )
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text}"
        return dict(answer.json())

    def _make_keys(self) -> None:
        # RSA, since the same key signs the tokens of service accounts.
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
             "-subj", "/CN=api", "-addext", "subjectAltName=IP:127.0.0.1",
             "-keyout", str(self.key), "-out", str(self.certificate)],
            check=True, capture_output=True, timeout=60,
        )  # fmt: skip

    def _start(self, name: str, *argv: str) -> None:
        with open(self._log(name), "wb") as log:
            self._running[name] = subprocess.Popen(
                argv, stdout=log, stderr=log, cwd=self.base, env=UNMARKED
            )

    def _log(self, name: str) -> Path:
        return self.base / f"{name}.log"


def ready_node(name: str, allocatable: Mapping[str, int], labels: Sequence[str] = ()) -> Any:
    """Returns a Node that pods may be bound to."""
    amounts = {"cpu": "64", "memory": "512Gi", "pods": "250"} | {
        key: str(value) for key, value in allocatable.items()
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": dict.fromkeys(labels, "true")},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


#: Where objects of each kind are made: API path, and whether they are of a namespace.
_KINDS = {
    "Namespace": ("/api/v1", "namespaces", False),
    "ServiceAccount": ("/api/v1", "serviceaccounts", True),
    "ConfigMap": ("/api/v1", "configmaps", True),
    "Secret": ("/api/v1", "secrets", True),
    "Service": ("/api/v1", "services", True),
    "ResourceQuota": ("/api/v1", "resourcequotas", True),
    "ClusterRole": ("/apis/rbac.authorization.k8s.io/v1", "clusterroles", False),
    "ClusterRoleBinding": ("/apis/rbac.authorization.k8s.io/v1", "clusterrolebindings", False),
    "Role": ("/apis/rbac.authorization.k8s.io/v1", "roles", True),
    "RoleBinding": ("/apis/rbac.authorization.k8s.io/v1", "rolebindings", True),
    "PriorityClass": ("/apis/scheduling.k8s.io/v1", "priorityclasses", False),
    "DaemonSet": ("/apis/apps/v1", "daemonsets", True),
    "Deployment": ("/apis/apps/v1", "deployments", True),
    "PodDisruptionBudget": ("/apis/policy/v1", "poddisruptionbudgets", True),
    "ValidatingAdmissionPolicy": (
        "/apis/admissionregistration.k8s.io/v1",
        "validatingadmissionpolicies",
        False,
    ),
    "ValidatingAdmissionPolicyBinding": (
        "/apis/admissionregistration.k8s.io/v1",
        "validatingadmissionpolicybindings",
        False,
    ),
}


def collection(manifest: Mapping[str, Any], namespace: str = "default") -> str:
    """Returns the path at which an object is made.

    Args:
        namespace: where it names none.
    """
    base, plural, is_namespaced = _KINDS[manifest["kind"]]
    if not is_namespaced:
        return f"{base}/{plural}"
    where = manifest["metadata"].get("namespace", namespace)
    return f"{base}/namespaces/{where}/{plural}"
