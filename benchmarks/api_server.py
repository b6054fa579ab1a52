"""A small Kubernetes API server over TLS that keeps a few kinds and can fail on request.

For measurements and tests. It answers on threads of its own; its tables may be changed meanwhile.
"""

import json
import re
import shutil
import ssl
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from deviceplugin.kube.api_client import ApiServer
from libvgpu.errors import VgpuError

TOKEN = "a-token"
_EVENTS = re.compile(r"/api/v1/namespaces/([^/]+)/events(?:/([^/]+))?")
_NODE = re.compile(r"/api/v1/nodes/([^/]+)")
_POD = re.compile(r"/api/v1/namespaces/([^/]+)/pods/([^/]+)")
_FEATURES = re.compile(r"/apis/nfd.k8s-sigs.io/v1alpha1/namespaces/([^/]+)/nodefeatures(?:/(.+))?")

_LEASES = re.compile(r"/apis/coordination.k8s.io/v1/namespaces/([^/]+)/leases(?:/(.+))?")


def _status(message: str) -> dict[str, Any]:
    return {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message}


def merge_patch(into: dict[str, Any], patch: dict[str, Any]) -> None:
    """Merges a JSON merge patch, as RFC 7386 has it."""
    for key, value in patch.items():
        if value is None:
            into.pop(key, None)
        elif isinstance(value, dict):
            if not isinstance(into.get(key), dict):
                into[key] = {}
            merge_patch(into[key], value)
        else:
            into[key] = value


def make_account(base: Path, namespace: str = "") -> Path:
    """Makes the directory of a service account below ``base``, and in it the server's certificate.

    Args:
        namespace: of the account; empty: its file does not say.

    Raises:
        VgpuError: openssl is not installed.
    """
    tool = shutil.which("openssl")
    if tool is None:
        raise VgpuError("openssl, which makes the API server's certificate, is not installed")
    account = base / "serviceaccount"
    account.mkdir()
    subprocess.run(
        [tool, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-days", "2", "-subj", "/CN=api", "-addext", "subjectAltName=IP:127.0.0.1",
         "-keyout", str(account / "server.key"), "-out", str(account / "ca.crt")],
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    (account / "token").write_text(TOKEN + "\n")
    if namespace:
        (account / "namespace").write_text(namespace)
    return account


class StandInApiServer:
    """Serves on a free port of 127.0.0.1 from `start` to `stop`; may be started again.

    Attributes:
        account: what a pod has of its service account.
        events: by name.
        calls: method and path of each.
        nodes: labels by name; others are not there.
        pods: UID by namespace and name; others are not there.
        labels: of those pods.
        annotations: of those Nodes, by name.
        features: NFD's NodeFeatures by namespace and name; None where the cluster has no NFD.
        leases: by namespace and name; None where nobody may have one.
        node_uids: of Nodes, by name.
        node_info: what the kubelet reports of a Node, by name; others are not there.
        refuse_with: the status of every answer, unless 0.
        answer_by: the status of all answers of a path, instead of its own.
        token: the one it knows.
    """

    def __init__(self, base: Path) -> None:
        """Makes its certificate below ``base``.

        Raises:
            VgpuError: openssl is not installed.
        """
        self.account = make_account(base)
        self.events: dict[str, dict[str, Any]] = {}
        self.calls: list[tuple[str, str]] = []
        self.nodes: dict[str, dict[str, str]] = {}
        self.pods: dict[tuple[str, str], str] = {}
        self.node_info: dict[str, dict[str, str]] = {}
        self.labels: dict[tuple[str, str], dict[str, str]] = {}
        self.annotations: dict[str, dict[str, str]] = {}
        self.features: dict[tuple[str, str], dict[str, Any]] | None = {}
        self.leases: dict[tuple[str, str], dict[str, Any]] | None = {}
        self.node_uids: dict[str, str] = {}
        self.refuse_with = 0
        self.answer_by: dict[str, int] = {}
        self.token = TOKEN
        self.port = 0
        self._server: ThreadingHTTPServer | None = None

    def start(self) -> None:
        """Begins to serve."""
        server = ThreadingHTTPServer(("127.0.0.1", self.port), self._handler())
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.account / "ca.crt", self.account / "server.key")
        server.socket = context.wrap_socket(server.socket, server_side=True)
        self.port = server.server_address[1]
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        self._server = server

    def stop(self) -> None:
        """Ends it; what it keeps stays."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def api(self) -> ApiServer:
        """Returns how a pod of the cluster reaches it."""
        found = ApiServer.from_environment(self.environment(), self.account)
        assert found is not None
        return found

    def environment(self) -> dict[str, str]:
        """Returns the variables by which a pod finds it."""
        return {
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": str(self.port),
        }

    # A row for each call.
    def answer(self, method: str, path: str, token: str, body: Any) -> tuple[int, Any]:  # noqa: C901, PLR0911, PLR0912
        """Returns status and body of the answer to one call."""
        self.calls.append((method, path))
        if token != f"Bearer {self.token}":
            return 401, _status("who are you?")
        if status := self.answer_by.get(path, self.refuse_with):
            return status, _status("planted")
        node = _NODE.fullmatch(path)
        if node is not None and node[1] in self.node_info:
            return 200, {"status": {"nodeInfo": self.node_info[node[1]]}}
        if node is not None:
            if node[1] not in self.nodes:
                return 404, _status("not found")
            metadata = {
                "labels": self.nodes[node[1]],
                "annotations": self.annotations.setdefault(node[1], {}),
            }
            if method == "PATCH":
                merge_patch(metadata, body["metadata"])
            uid = self.node_uids.get(node[1])
            return 200, {"metadata": {"name": node[1], "uid": uid, **metadata}}
        pod = _POD.fullmatch(path)
        if pod is not None:
            uid = self.pods.get((pod[1], pod[2]))
            labels = self.labels.get((pod[1], pod[2]), {})
            return (
                (200, {"metadata": {"uid": uid, "labels": labels}})
                if uid
                else (404, _status("not found"))
            )
        feature = _FEATURES.fullmatch(path)
        if feature is not None and self.features is not None:
            name = feature[2] or body["metadata"]["name"]
            return self._kept(method, self.features, (feature[1], name), body)
        lease = _LEASES.fullmatch(path)
        if lease is not None:
            if self.leases is None:
                return 403, _status("leases is forbidden")
            name = lease[2] or body["metadata"]["name"]
            return self._kept(method, self.leases, (lease[1], name), body)
        events = _EVENTS.fullmatch(path)
        if events is None:
            return 404, _status("not found")
        if method == "POST":
            if body["metadata"]["namespace"] != events[1]:
                return 400, _status("namespace")
            name = body["metadata"]["name"]
            if name in self.events:
                return 409, _status("exists")
            self.events[name] = body
            return 201, body
        if method == "PATCH" and events[2] in self.events:
            self.events[events[2]].update(body)
            return 200, self.events[events[2]]
        return 404, _status("not found")

    @staticmethod
    def _kept(
        method: str, table: dict[Any, dict[str, Any]], key: Any, body: Any
    ) -> tuple[int, Any]:
        """Answers a call for one object of a table."""
        if method == "POST":
            return (409, _status("exists")) if key in table else (201, table.setdefault(key, body))
        if key not in table:
            return 404, _status("not found")
        if method == "PATCH":
            merge_patch(table[key], body)
        return 200, table[key]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def do_any(self) -> None:
                length = int(self.headers.get("Content-Length", "0"))
                body = json.loads(self.rfile.read(length)) if length else None
                status, answer = fake.answer(
                    self.command, self.path, self.headers.get("Authorization", ""), body
                )
                content = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = do_PATCH = do_any  # noqa: N815

            def log_message(self, *_: object) -> None:
                pass

        return Handler
