"""Who may call the extender, as the chart wires it: nobody without its certificate.

The extender runs with the options and the files that its pod would have.
"""

import http.client
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from deviceplugin.scheduler.wire.server import CALLS
from support.api_server.cluster_server import ClusterServer
from support.cluster import install
from support.scheduler.process import extender, make_certificate
from support.waiting import PATIENCE_S

pytestmark = install.MARKS
NAME, SERVED = "vgpu-scheduler", "vgpu-scheduler.vgpu-system.svc"
#: What a test's own extender has of its own.
OWN = ("--address", "--probe-address", "--config", "--namespace", "--tls-dir")
PAGES = ("/metrics", "/healthz", "/readyz")


class Wired:
    """An extender and the directories that are mounted for it."""

    def __init__(self, base: Path) -> None:
        found = install.objects("--set", "scheduler.enabled=true")
        spec = found["Deployment", NAME]["spec"]["template"]["spec"]
        secrets = {v["name"]: v["secret"]["secretName"] for v in spec["volumes"] if "secret" in v}
        (container,) = spec["containers"]
        self.options = [a for a in container["args"] if a.partition("=")[0] not in OWN]
        self.directories: dict[str, Path] = {}
        for mount in container["volumeMounts"]:
            if mount["name"] in secrets:
                directory = self.directories[mount["name"]] = base / mount["name"]
                install.write_secret(found["Secret", secrets[mount["name"]]], directory)
                self.options = [a.replace(mount["mountPath"], str(directory)) for a in self.options]
        self.port = 0

    def ask(self, method: str, path: str, shows: Path | None) -> int:
        """Returns the status of a call of whoever has a certificate, or none."""
        context = ssl.create_default_context(cafile=str(self.directories["tls"] / "ca.crt"))
        context.check_hostname = False
        if shows is not None:
            context.load_cert_chain(shows / "tls.crt", shows / "tls.key")
        connection = http.client.HTTPSConnection(
            "127.0.0.1", self.port, timeout=PATIENCE_S, context=context
        )
        try:
            connection.request(method, path, b"{}" if method == "POST" else None)
            return connection.getresponse().status
        finally:
            connection.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterServer]:
    with ClusterServer(tmp_path_factory.mktemp("server")) as found:
        yield found


@pytest.fixture(scope="module")
def wired(server: ClusterServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wired]:
    base = tmp_path_factory.mktemp("wired")
    found = Wired(base)
    with extender(server, base, *found.options, tls=found.directories["tls"]) as running:
        found.port = running.port
        yield found


@pytest.mark.parametrize("path", [*CALLS, *PAGES])
def test_by_default_nobody_without_a_certificate_is_answered(
    wired: Wired, tmp_path: Path, path: str
) -> None:
    make_certificate(tmp_path / "own", SERVED)
    method = "GET" if path in PAGES else "POST"

    for shows in (None, tmp_path / "own", wired.directories["tls"]):
        with pytest.raises(OSError, match=r"(?i)certificate|unknown ca|reset|closed|EOF"):
            wired.ask(method, path, shows)
    # `{}` is no call: it got as far as to be read.
    expected = {200, 400} if method == "POST" else {200}
    assert wired.ask(method, path, wired.directories["client"]) in expected
