"""The extender as a process, next to a simulated API server with inventories and pods."""

import contextlib
import http.client
import json
import re
import ssl
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.simulated_cluster.api_server import SimulatedApiServer
from support import ROOT, warm
from support.api_server.cluster_server import NAMESPACE
from support.scheduler.values import DOMAIN
from support.waiting import PATIENCE_S, wait_until

TLS_NAME = f"vgpu-scheduler.{NAMESPACE}.svc"


def make_certificate(directory: Path, name: str = TLS_NAME) -> None:
    """Writes a new certificate into a directory, each file at once, as a Secret's volume does."""
    directory.mkdir(exist_ok=True)
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-days", "2", "-subj", "/CN=extender",
         "-addext", f"subjectAltName=IP:127.0.0.1,DNS:{name}",
         "-keyout", str(directory / "new.key"), "-out", str(directory / "new.crt")],
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    for suffix in ("key", "crt"):
        (directory / f"new.{suffix}").rename(directory / f"tls.{suffix}")


def pod_json(
    name: str, core: int = 0, memory: int = 0, node: str = "", **more: Any
) -> dict[str, Any]:
    """Returns a pod of namespace ``team`` with one container, as the API server has it."""
    amounts = {"vgpu-core": core, "vgpu-memory": memory}
    limits = {f"{DOMAIN}/{key}": str(n) for key, n in amounts.items() if n}
    return {
        "metadata": {
            "name": name,
            "namespace": more.pop("namespace", "team"),
            "uid": f"uid-{name}",
            "annotations": more.pop("annotations", {}),
        },
        "spec": {
            "nodeName": node,
            "priority": more.pop("priority", 0),
            "containers": [{"name": "main", "image": "x", "resources": {"limits": limits}}],
            **more,
        },
        "status": {"phase": "Pending"},
    }


class ExtenderProcess:
    """A running extender.

    Attributes:
        port: where it listens.
        probes: where it serves its pages, without TLS.
        log_file: what it says.
        shows: directory of the certificate that clients show; None for none.
    """

    def __init__(
        self,
        server: SimulatedApiServer,
        base: Path,
        *options: str,
        tls: Path | None = None,
        name: str = "extender",
    ) -> None:
        """Starts it, and waits until it listens.

        Args:
            tls: directory of its certificate; None for plain HTTP.
        """
        self.log_file, self._tls = base / f"{name}.log", tls
        self.shows: Path | None = None
        secure = [f"--tls-dir={tls}"] if tls is not None else ["--plain-http"]
        with open(self.log_file, "ab") as log:
            self.process = warm.start(
                ["-m", "deviceplugin.scheduler", "--address=127.0.0.1:0",
                 "--probe-address=127.0.0.1:0", f"--namespace={NAMESPACE}",
                 f"--service-account={server.account}", *secure, *options],
                server.environment() | {"PYTHONPATH": str(ROOT)}, log,
            )  # fmt: skip
        self.port = int(self.wait_for(r'msg="scheduler extender started" address=(\d+)'))
        self.probes = int(self.wait_for(r"probes=(\d+)"))

    @property
    def log(self) -> str:
        """All it has said."""
        return self.log_file.read_text()

    def wait_for(self, pattern: str) -> str:
        """Returns the first group of a line of the log once it is there."""

        def look() -> re.Match[str] | None:
            assert self.process.poll() is None, self.log
            return re.search(pattern, self.log)

        found = wait_until(look, pattern)
        return found[1] if found.groups() else found[0]

    def wait_ready(self) -> None:
        """Waits until it knows the cluster, and binds where it is to."""
        wait_until(lambda: self.get("/readyz")[0] == 200, "the extender is ready")

    def wait_leader(self) -> None:
        """Waits until it binds."""
        wait_until(lambda: "vgpu_scheduler_leader 1.0" in self.get("/metrics")[1], "it leads")

    def connect(self) -> http.client.HTTPConnection:
        """Returns a new connection; over TLS it trusts the certificate that is there now."""
        if self._tls is None:
            return http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        context = ssl.create_default_context(cafile=str(self._tls / "tls.crt"))
        if self.shows is not None:
            context.load_cert_chain(self.shows / "tls.crt", self.shows / "tls.key")
        return http.client.HTTPSConnection(
            "127.0.0.1", self.port, timeout=PATIENCE_S, context=context
        )

    def ask(self, method: str, path: str, body: bytes | None = None) -> tuple[int, str]:
        """Makes a call on a connection of its own; returns status and body."""
        with contextlib.closing(self.connect()) as connection:
            return _ask(connection, method, path, body)

    def get(self, path: str) -> tuple[int, str]:
        """Returns status and body of a page; 0 where nobody listens."""
        pages = http.client.HTTPConnection("127.0.0.1", self.probes, timeout=PATIENCE_S)
        try:
            with contextlib.closing(pages):
                return _ask(pages, "GET", path)
        except (OSError, http.client.HTTPException):
            return 0, ""

    def call(self, path: str, value: Any) -> Any:
        """Makes a call that is answered well, and returns what it is told."""
        status, body = self.ask("POST", path, json.dumps(value).encode())
        assert status == 200, (status, body)
        return json.loads(body)

    def filter(self, pod: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
        """Asks which nodes fit."""
        found: dict[str, Any] = self.call("/filter", {"Pod": pod, "NodeNames": list(names)})
        return found

    def bind(self, pod: Mapping[str, Any], node: str) -> str:
        """Asks to bind; returns the error."""
        metadata = pod["metadata"]
        return str(
            self.call(
                "/bind",
                {
                    "PodName": metadata["name"],
                    "PodNamespace": metadata["namespace"],
                    "PodUID": metadata["uid"],
                    "Node": node,
                },
            )["Error"]
        )

    def stop(self) -> None:
        """Ends it at once."""
        self.process.kill()
        self.process.wait()


def _ask(
    connection: http.client.HTTPConnection, method: str, path: str, body: bytes | None = None
) -> tuple[int, str]:
    connection.request(method, path, body)
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


@contextlib.contextmanager
def extender(
    server: SimulatedApiServer, base: Path, *options: str, **more: Any
) -> Iterator[ExtenderProcess]:
    """Gives a running extender that knows the cluster."""
    found = ExtenderProcess(server, base, *options, **more)
    try:
        found.wait_ready()
        yield found
    finally:
        found.stop()
