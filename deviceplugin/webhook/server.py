"""HTTPS for the API server: one thread a connection, and a certificate that may be replaced.

The accepting thread looks whether the certificate's files have changed (a Secret's volume follows
the Secret) and never waits for a client: handshakes are made by the connections' own threads. A
certificate that cannot be read leaves the one before in use.
"""

import logging
import socket
import ssl
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from deviceplugin.log import event

from .pod_patch import PodRules
from .review import ReviewError, answer

#: Larger than what an API server takes for one object (3 MiB), which a review holds once here.
MOST_BYTES = 8 << 20
#: How long a connection may say nothing; the API server keeps its own open between pods.
IDLE_TIMEOUT_S = 60.0

Identity = tuple[tuple[int, int, int], ...]


class Certificate:
    """The certificate in force: ``tls.crt`` and ``tls.key`` of a directory.

    Of one thread.
    """

    def __init__(self, directory: Path) -> None:
        """Reads it.

        Raises:
            OSError: it is not there (`ssl.SSLError` is one), or is none.
        """
        self._files = (directory / "tls.crt", directory / "tls.key")
        self._identity = self._look()
        self._context = self._load()

    def context(self) -> ssl.SSLContext:
        """Returns what new connections use."""
        try:
            identity = self._look()
            if identity != self._identity:
                self._identity = identity
                self._context = self._load()
                event(logging.INFO, "new certificate in use", file=self._files[0])
        except OSError as error:
            event(logging.ERROR, "the new certificate cannot be used", reason=str(error))
        return self._context

    def _look(self) -> Identity:
        stats = [file.stat() for file in self._files]
        return tuple((s.st_mtime_ns, s.st_size, s.st_ino) for s in stats)

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self._files)
        return context


class WebhookServer(ThreadingHTTPServer):
    """Answers reviews at ``/pods`` and probes at ``/healthz`` until `shutdown`."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, listening: socket.socket, certificate: Certificate, rules: PodRules) -> None:
        """Takes over a listening socket."""
        super().__init__(listening.getsockname()[:2], _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listening
        self.rules = rules
        self._certificate = certificate

    def get_request(self) -> tuple[socket.socket, object]:
        """Returns the next connection, whose handshake is still to be made."""
        connection, address = self.socket.accept()
        connection.settimeout(IDLE_TIMEOUT_S)
        context = self._certificate.context()
        return (
            context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False),
            address,
        )

    def handle_error(self, request: object, client_address: object) -> None:
        """Says nothing: clients go away, and probes may not know the certificate."""


class _Handler(BaseHTTPRequestHandler):
    server: WebhookServer
    protocol_version = "HTTP/1.1"
    timeout = IDLE_TIMEOUT_S

    def do_GET(self) -> None:
        found = self.path == "/healthz"
        self._say(HTTPStatus.OK if found else HTTPStatus.NOT_FOUND, b"ok\n" if found else b"")

    def do_POST(self) -> None:
        if self.path.partition("?")[0] != "/pods":
            self._refuse(HTTPStatus.NOT_FOUND, f"there is no {self.path}, only /pods")
            return
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > MOST_BYTES:
            self._refuse(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"Content-Length is {length or 'not given'}, and at most {MOST_BYTES} are read",
            )
            return
        try:
            said = answer(self.rfile.read(int(length)), self.server.rules)
        except ReviewError as error:
            self._refuse(HTTPStatus.BAD_REQUEST, str(error))
            return
        self._say(HTTPStatus.OK, said, "application/json")

    def _refuse(self, status: HTTPStatus, why: str) -> None:
        event(logging.WARNING, "a call was refused", status=status.value, reason=why)
        self.close_connection = True  # what is left of the body would be read as the next call
        self._say(status, f"{why}\n".encode())

    def _say(self, status: HTTPStatus, body: bytes, kind: str = "text/plain") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing of calls that go well."""
