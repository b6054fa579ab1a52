"""The webhook as a process, asked over TLS as an API server asks."""

import contextlib
import http.client
import json
import os
import re
import shutil
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from support.scheduler.process import make_certificate
from support.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
RULES = {"resources": ["nvidia.com/gpu"], "labels": {"a": "b"}}


class Webhook:
    """A running webhook; `ask` trusts the certificate that lies in its directory."""

    def __init__(self, base: Path, process: "subprocess.Popen[str]", log: IO[str]) -> None:
        self.tls, self.process, self._log = base / "tls", process, log
        self.port = int(self.wait_for(r'msg="webhook started" address=(\d+)'))
        self.probes = int(self.wait_for(r"probes=(\d+)"))

    def wait_for(self, pattern: str) -> str:
        """Returns the first group of a line of the log once it is there."""

        def found() -> re.Match[str] | None:
            assert self.process.poll() is None, Path(self._log.name).read_text()
            return re.search(pattern, Path(self._log.name).read_text())

        line = wait_until(found, pattern)
        return line[1] if line.groups() else ""

    def connect(self, shows: Path | None = None) -> http.client.HTTPSConnection:
        context = ssl.create_default_context(cafile=str(self.tls / "tls.crt"))
        if shows is not None:
            context.load_cert_chain(shows / "tls.crt", shows / "tls.key")
        return http.client.HTTPSConnection(
            "127.0.0.1", self.port, timeout=PATIENCE_S, context=context
        )

    def ask(
        self, method: str, path: str, body: bytes | None = None, shows: Path | None = None
    ) -> tuple[int, bytes]:
        with contextlib.closing(self.connect(shows)) as connection:
            connection.request(method, path, body)
            answer = connection.getresponse()
            return answer.status, answer.read()


@contextlib.contextmanager
def started(base: Path, *options: str) -> Iterator[Webhook]:
    make_certificate(base / "tls")
    (base / "rules.json").write_text(json.dumps(RULES))
    with open(base / "log", "w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "deviceplugin.webhook", f"--rules={base / 'rules.json'}",
             f"--tls-dir={base / 'tls'}", "--address=127.0.0.1:0", *options],
            stderr=log, text=True,
        )  # fmt: skip
        try:
            yield Webhook(base, process, log)
        finally:
            process.kill()
            process.wait()


@pytest.fixture
def webhook(tmp_path: Path) -> Iterator[Webhook]:
    with started(tmp_path) as found:
        yield found


def body() -> bytes:
    container = {"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    request = {"uid": "7", "object": {"metadata": {}, "spec": {"containers": [container]}}}
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    return json.dumps(review).encode()


def test_it_answers_reviews_and_probes_on_one_connection(webhook: Webhook) -> None:
    with contextlib.closing(webhook.connect()) as connection:
        for _ in range(2):
            connection.request("POST", "/pods?timeout=3s", body())
            answer = connection.getresponse()
            assert (answer.status, answer.getheader("Content-Type")) == (200, "application/json")
            assert json.loads(answer.read())["response"]["patchType"] == "JSONPatch"
        connection.request("GET", "/healthz")
        assert connection.getresponse().status == 200


def test_what_it_cannot_answer_is_refused_with_a_sentence(webhook: Webhook) -> None:
    assert webhook.ask("POST", "/pods", b"{}")[0] == 400
    assert b"there is no /x" in webhook.ask("POST", "/x", body())[1]
    assert webhook.ask("GET", "/")[0] == 404
    with contextlib.closing(webhook.connect()) as connection:
        connection.putrequest("POST", "/pods")
        connection.putheader("Content-Length", str(1 << 40))
        connection.endheaders()
        assert connection.getresponse().status == 413
    assert webhook.ask("GET", "/healthz")[0] == 200


def test_a_client_that_says_nothing_keeps_nobody_waiting(webhook: Webhook) -> None:
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", webhook.port)) as silent:
        silent.connect()  # and no handshake

        assert webhook.ask("GET", "/healthz")[0] == 200


def test_where_an_authority_is_given_only_who_shows_its_certificate_is_answered(
    tmp_path: Path,
) -> None:
    client = tmp_path / "client"
    make_certificate(client, "api-server")
    options = [f"--client-ca={client / 'tls.crt'}", "--probe-address=127.0.0.1:0"]
    with started(tmp_path, *options) as webhook:
        for shows in (None, webhook.tls):
            with pytest.raises(OSError, match=r"(?i)certificate|unknown ca|reset|closed|EOF"):
                webhook.ask("POST", "/pods", body(), shows)
        assert webhook.ask("POST", "/pods", body(), client)[0] == 200
        probe = http.client.HTTPConnection("127.0.0.1", webhook.probes, timeout=PATIENCE_S)
        with contextlib.closing(probe):
            probe.request("GET", "/healthz")
            assert probe.getresponse().status == 200


def test_a_new_certificate_is_used_and_a_broken_one_is_not(webhook: Webhook) -> None:
    make_certificate(webhook.tls)
    assert webhook.ask("GET", "/healthz")[0] == 200
    webhook.wait_for("new certificate in use")

    good = (webhook.tls / "tls.crt").read_text()
    (webhook.tls / "tls.crt").write_text("nothing")
    context = ssl.create_default_context(cadata=good)
    with contextlib.closing(
        http.client.HTTPSConnection("127.0.0.1", webhook.port, timeout=PATIENCE_S, context=context)
    ) as connection:
        connection.request("GET", "/healthz")
        assert connection.getresponse().status == 200
    webhook.wait_for("the new certificate cannot be used")


def test_it_ends_by_itself_when_told(webhook: Webhook) -> None:
    os.kill(webhook.process.pid, signal.SIGTERM)

    assert webhook.process.wait(PATIENCE_S) == 0


@pytest.mark.parametrize(
    ("rules", "tls", "says"),
    [
        ("{}", True, "missing required field `resources`"),
        ('{"resources": [], "x": 1}', True, "unknown field `x`"),
        ('{"resources": []}', False, "has no certificate"),
    ],
)
def test_a_bad_start_is_one_sentence(tmp_path: Path, rules: str, tls: bool, says: str) -> None:
    (tmp_path / "rules.json").write_text(rules)
    (tmp_path / "tls").mkdir()
    if tls:
        make_certificate(tmp_path / "tls")
    result = subprocess.run(
        [sys.executable, "-m", "deviceplugin.webhook", f"--rules={tmp_path / 'rules.json'}",
         f"--tls-dir={tmp_path / 'tls'}", "--address=127.0.0.1:0"],
        capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip

    assert result.returncode == 2
    assert says in result.stderr
