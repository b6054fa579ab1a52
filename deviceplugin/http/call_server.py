"""HTTP/1.1 for a few clients that ask often: one thread a connection, kept open between calls.

With TLS or without. The accepting thread never waits for a client: handshakes are made by the
connections' own threads (`call_handler`). What clients may take of time, memory, calls and
connections is bounded (`Limits`); pages that are read (GET) wait for no call.
"""

import contextlib
import socket
import sys
import threading
import time
from http.server import ThreadingHTTPServer
from typing import Any

from deviceplugin.log import LOGGER

from .call_body import Meter
from .call_handler import CallHandler
from .calls import Limits, Routes, Told
from .certificate import Certificate

#: About clients: whoever sends nonsense in a loop must not fill the log.
_MOST_LINES_A_SECOND = 5


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
            certificate: None for HTTP without TLS. One that knows clients: calls of others are
                refused, and pages are for anybody.
            told: called by the connections' threads.
        """
        super().__init__(listening.getsockname()[:2], CallHandler, bind_and_activate=False)
        self.socket.close()
        self.socket = listening
        self.routes, self.limits, self.told = routes, limits or Limits(), told
        # Those that wait to be accepted: a client whose try is lost tries again a second later.
        listening.listen(self.limits.connections)
        self.meter = Meter(self.limits.bodies_bytes)
        self.calls = threading.BoundedSemaphore(self.limits.calls)
        self._certificate = certificate
        self.knows_clients = certificate is not None and certificate.knows_clients
        #: Since when each connection is idle; 0 while it has a call.
        self._idle: dict[socket.socket, float] = {}
        self._logged_at_s = self._logged = 0
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

    def may_log(self) -> bool:
        """Returns whether the log has room for one more line about a client."""
        now_s = int(time.monotonic())
        with self._lock:
            if now_s != self._logged_at_s:
                self._logged_at_s, self._logged = now_s, 0
            self._logged += 1
            return self._logged <= _MOST_LINES_A_SECOND

    def end_calls(self, timeout_s: float) -> None:
        """Waits for a while until no connection has a call; call it after `shutdown`."""
        end_s = time.monotonic() + timeout_s
        while time.monotonic() < end_s:
            with self._lock:
                if all(self._idle.values()):
                    return
            time.sleep(0.02)

    def handle_error(self, request: object, client_address: object) -> None:
        """Says nothing of clients that go away, and probes that do not know the certificate."""
        if not isinstance(sys.exc_info()[1], OSError) and self.may_log():
            LOGGER.exception("a connection failed")
