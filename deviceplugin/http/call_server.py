"""HTTP/1.1 for a few clients that ask often: one thread a connection, kept open between calls.

With TLS or without. The accepting thread never waits for a client: handshakes are made by the
connections' own threads. What clients may take of time, memory, calls and connections is bounded
(`Limits`); pages that are read (GET) wait for no call. A call that is refused before it was read to
its end costs its connection, and the rest of it is read for a moment and thrown away, so that the
client sees the answer and no reset.
"""

import contextlib
import io
import logging
import socket
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from deviceplugin.log import LOGGER, event

from .call_body import Body, ClientGone, Meter, declared_length
from .calls import TEXT, Answer, Call, CallRefused, Limits, Routes, Told
from .certificate import Certificate
from .timed_reader import TimedReader

FAULT = "the program failed; see its log"
_LINGER_S, _LINGER_BYTES = 1.0, 8 << 20


class CallServer(ThreadingHTTPServer):
    """Answers the calls of `Routes` until `shutdown`."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(
        self,
        listening: socket.socket,
        routes: Routes,
        certificate: Certificate | None,
        limits: Limits | None = None,
        told: Told = lambda path, status, seconds: None,
    ) -> None:
        """Takes over a listening socket.

        Args:
            certificate: None for HTTP without TLS.
            told: called by the connections' threads.
        """
        super().__init__(listening.getsockname()[:2], _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listening
        self.routes, self.limits, self.told = routes, limits or Limits(), told
        self.meter = Meter(self.limits.bodies_bytes)
        self.calls = threading.BoundedSemaphore(self.limits.calls)
        self._certificate = certificate
        #: Since when each connection is idle; 0 while it has a call.
        self._idle: dict[socket.socket, float] = {}
        self._lock = threading.Lock()

    def get_request(self) -> tuple[socket.socket, object]:
        """Returns the next connection, whose handshake is still to be made."""
        connection, address = self.socket.accept()
        try:
            connection.settimeout(self.limits.read_s)
            if self._certificate is None:
                return connection, address
            context = self._certificate.context()
            return (
                context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False),
                address,
            )
        except (OSError, ValueError) as error:  # the client is gone again
            connection.close()
            raise OSError(str(error)) from None

    def verify_request(self, request: Any, client_address: object) -> bool:
        """Returns whether a connection has a place, and makes one where it can."""
        with self._lock:
            if len(self._idle) >= self.limits.connections:
                idle = [(since, each) for each, since in self._idle.items() if since]
                if not idle:
                    return False
                oldest = min(idle, key=lambda each: each[0])[1]
                del self._idle[oldest]
                with contextlib.suppress(OSError):
                    # Not the TLS socket's own, which its thread may be using.
                    socket.socket.shutdown(oldest, socket.SHUT_RDWR)
            self._idle[request] = time.monotonic()
            return True

    def shutdown_request(self, request: Any) -> None:
        """Ends a connection."""
        with self._lock:
            self._idle.pop(request, None)
        with contextlib.suppress(OSError):
            socket.socket.shutdown(request, socket.SHUT_WR)
        self.close_request(request)

    def note_idle(self, connection: socket.socket, is_idle: bool) -> None:
        """Notes whether a connection has a call; one that lost its place has none to note."""
        with self._lock:
            if connection in self._idle:
                self._idle[connection] = time.monotonic() if is_idle else 0.0

    def end_calls(self, timeout_s: float) -> None:
        """Waits for a while until no connection has a call; call it after `shutdown`."""
        end_s = time.monotonic() + timeout_s
        while time.monotonic() < end_s:
            with self._lock:
                if all(self._idle.values()):
                    return
            time.sleep(0.02)

    def handle_error(self, request: object, client_address: object) -> None:
        """Says nothing: clients go away, and probes may not know the certificate."""


class _Handler(BaseHTTPRequestHandler):
    server: CallServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # an answer goes out as one piece

    def setup(self) -> None:
        super().setup()
        self._told_path, self._began_s = "", 0.0
        if hasattr(self.connection, "do_handshake"):
            self.connection.do_handshake()
        self.rfile.close()
        self._reader = TimedReader(self.connection)
        self.rfile = io.BufferedReader(self._reader)

    def handle_one_request(self) -> None:
        self._reader.expect_call(self.server.limits.idle_s, self.server.limits.read_s)
        self.server.note_idle(self.connection, True)
        try:
            self.raw_requestline = self.rfile.readline(65537)
            if not self.raw_requestline:
                self.close_connection = True
                return
            self.server.note_idle(self.connection, False)
            self._began_s, self._told_path, self.command = time.monotonic(), "", ""
            if len(self.raw_requestline) > 65536:
                self.send_error(HTTPStatus.REQUEST_URI_TOO_LONG)
            elif self.parse_request():
                self._answer()
            self.wfile.flush()
        except (TimeoutError, ClientGone, OSError):
            self.close_connection = True

    def handle_expect_100(self) -> bool:
        """Lets a client send the body it asks for only where it will be read."""
        try:
            declared_length(self._headers(), self.server.limits)
        except CallRefused:
            return True  # refused with the reason, by `_answer`
        ok = super().handle_expect_100()
        self.wfile.flush()
        return ok

    def _answer(self) -> None:
        path = self.path.partition("?")[0]
        routes = self.server.routes
        try:
            handler = routes.get((self.command, path))
            if handler is None:
                raise self._no_route(path)
            self._told_path = path
            if self.command == "GET":
                if self.headers.get("Content-Length", "0") != "0":
                    self.close_connection = True  # nobody reads it
                self._say(handler(Call(path, headers=self._headers())))
                return
            body = Body(self.rfile, self.server.limits, self.server.meter)
            try:
                content = body.read(declared_length(self._headers(), self.server.limits))
                with self._place():
                    deadline_s = time.monotonic() + self.server.limits.answer_s
                    self._say(handler(Call(path, content, deadline_s, self._headers())))
            finally:
                body.forget()
        except CallRefused as refused:
            self._refuse(refused.status, str(refused))
        except (TimeoutError, ClientGone, OSError):
            raise
        except Exception:  # a fault of ours is an answer, and its trace is for the log
            LOGGER.exception("%s %s failed", self.command, path)
            self._refuse(HTTPStatus.INTERNAL_SERVER_ERROR, FAULT)

    @contextlib.contextmanager
    def _place(self) -> Any:
        if not self.server.calls.acquire(blocking=False):
            raise CallRefused(
                HTTPStatus.SERVICE_UNAVAILABLE,
                f"{self.server.limits.calls} calls are being answered, and no more are at one "
                "time; try again",
            )
        try:
            yield
        finally:
            self.server.calls.release()

    def _no_route(self, path: str) -> CallRefused:
        known = self.server.routes
        methods = [method for method, route in known if route == path]
        if methods:
            return CallRefused(
                HTTPStatus.METHOD_NOT_ALLOWED, f"{path} is asked by {' or '.join(methods)}"
            )
        paths = ", ".join(sorted({route for _, route in known}))
        return CallRefused(HTTPStatus.NOT_FOUND, f"there is no {path[:200]}, only {paths}")

    def _headers(self) -> dict[str, str]:
        return {name.lower(): value for name, value in self.headers.items()}

    def _refuse(self, status: int, why: str) -> None:
        event(logging.WARNING, "a call was refused", status=int(status), reason=why)
        is_post = self.command != "GET"
        # What is left of the body would be read as the next call.
        self.close_connection = self.close_connection or is_post
        self._say(Answer(f"{why}\n".encode(), status, TEXT))
        if is_post:
            self.wfile.flush()
            self._linger()

    def _linger(self) -> None:
        end_s, left = time.monotonic() + _LINGER_S, _LINGER_BYTES
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self.connection, socket.SHUT_WR)
            while left > 0 and (seconds := end_s - time.monotonic()) > 0:
                self.connection.settimeout(seconds)
                piece = self.connection.recv(64 << 10)
                if not piece:
                    return
                left -= len(piece)

    def _say(self, answer: Answer) -> None:
        self.connection.settimeout(self.server.limits.read_s)
        self.send_response_only(answer.status)
        self.send_header("Content-Type", answer.kind)
        self.send_header("Content-Length", str(len(answer.body)))
        if answer.status == HTTPStatus.SERVICE_UNAVAILABLE:
            self.send_header("Retry-After", "1")
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(answer.body)
        if self.command != "GET":
            seconds = time.monotonic() - self._began_s
            self.server.told(self._told_path, int(answer.status), seconds)

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing of calls that go well."""

