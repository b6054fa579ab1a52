"""Calls to an API server over TLS, and a service account that is renewed in place."""

import itertools
import shutil
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from benchmarks.simulated_cluster import api_server
from benchmarks.simulated_cluster.kinds import NODE
from deviceplugin.kube.api_client import ApiRefused, ApiServer, ApiUnreachable
from support.api_server.cluster_server import ClusterServer


@pytest.fixture
def server(server: ClusterServer) -> ClusterServer:
    server.label_pod("a", "ns", tier="batch")
    return server


def test_a_pod_is_told_by_its_metadata(server: ClusterServer) -> None:
    api = server.api()

    found = api.pod("ns", "a")

    assert found is not None
    assert (found.uid, found.labels) == ("uid-a", {"tier": "batch"})
    assert api.pod("ns", "b") is None
    assert server.calls == [
        ("GET", "/api/v1/namespaces/ns/pods/a"),
        ("GET", "/api/v1/namespaces/ns/pods/b"),
    ]


def test_a_node_tells_which_runtime_it_has(server: ClusterServer) -> None:
    info = dict.fromkeys(
        ("architecture", "bootID", "kernelVersion", "kubeProxyVersion", "machineID",
         "operatingSystem", "osImage", "systemUUID"), "x",
    )  # fmt: skip
    info |= {
        "containerRuntimeVersion": "containerd://2.1.4",
        "kubeletVersion": "v1.33.2",
    }
    server.put(NODE, "n1", status={"nodeInfo": info})
    api = server.api()

    assert api.node_versions("n1") == ("containerd://2.1.4", "v1.33.2")
    with pytest.raises(ApiRefused) as caught:
        api.node_versions("n2")
    assert caught.value.status == 404


def test_a_token_that_is_renewed_is_read_again(server: ClusterServer) -> None:
    api = server.api()
    assert api.pod("ns", "a") is not None

    server.token = "the-next-token"
    with pytest.raises(ApiRefused, match="Unauthorized") as caught:
        api.pod("ns", "a")
    assert caught.value.status == 401
    (server.account / "token").write_text("the-next-token\n")

    assert api.pod("ns", "a") is not None


def test_a_ca_that_is_renewed_is_read_again(server: ClusterServer, tmp_path: Path) -> None:
    api = server.api()
    assert api.pod("ns", "a") is not None
    renewed = ClusterServer(tmp_path / "other")
    server.stop()
    for name in ("ca.crt", "server.key"):
        shutil.copy(renewed.account / name, server.account / f"{name}.new")
    (server.account / "server.key.new").replace(server.account / "server.key")
    old_ca = (server.account / "ca.crt").read_bytes()
    (server.account / "ca.crt.new").replace(server.account / "ca.crt")
    server.start()

    assert api.pod("ns", "a") is not None
    (server.account / "ca.crt.new").write_bytes(old_ca)
    (server.account / "ca.crt.new").replace(server.account / "ca.crt")
    with pytest.raises(ApiUnreachable, match=r"does not answer: .*certificate"):
        api.pod("ns", "a")


@pytest.mark.parametrize("status", [200, 403, 404, 502])
def test_an_answer_of_no_api_server_fails_the_call_only(
    server: ClusterServer, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    contents = [b"null", b"[]", b"3", b"<html>", b'{"metadata": 3}', b"", b"{"]
    answers = list(itertools.product(contents, ("application/json", "text/html", None)))
    rest = iter(answers)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content, kind = next(rest)
            self.send_response(status)
            if kind is not None:
                self.send_header("Content-Type", kind)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    server.stop()
    monkeypatch.setattr(api_server, "_handler", lambda server: Handler)
    server.start()
    api = server.api()

    for answer in answers:
        reason = ""
        try:
            assert api.pod("ns", "a") is None, answer
        except (ApiRefused, ApiUnreachable) as error:
            reason = error.message

        assert reason or status == 404, answer
    assert next(rest, None) is None


def test_nobody_at_home_is_unreachable(tmp_path: Path) -> None:
    account = ClusterServer(tmp_path / "api").account

    with pytest.raises(ApiUnreachable, match=r"127\.0\.0\.1:1 does not answer"):
        ApiServer("127.0.0.1", 1, account).pod("ns", "a")
    (account / "ca.crt").unlink()
    with pytest.raises(ApiUnreachable, match="No such file"):
        ApiServer("127.0.0.1", 1, account).pod("ns", "a")
