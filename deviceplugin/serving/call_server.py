"""HTTP/1.1 for a few clients that ask often: one thread a connection, kept open between calls.

With TLS or without. The accepting thread never waits for a client: handshakes are made by the
connections' own threads (`call_handler`). What clients may take of time, memory, calls and
connections is bounded (`Limits`); pages that are read (GET) wait for no call. A new connection
finds a place as long as not all are being answered (`call_places`), and there are more places than
calls and pages that are answered at one time. So probes need no port of their own.
"""

import contextlib
import logging
import socket
import sys
import threading
import time
from collections.abc import Callable
from http.server import ThreadingHTTPServer
from typing import Any

from deviceplugin.log import LOGGER, event

from .call_handler import CallHandler
from .call_places import Place, Places, source_of
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
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Takes over a listening socket.

        Args:
            certificate: None for HTTP without TLS. One that knows clients: calls of others are
                refused, and pages are for anybody.
            told: called by the connections' threads.
            clock: never goes back.
        """
        super().__init__(listening.getsockname()[:2], CallHandler, bind_and_activate=False)
        self.socket.close()
        self.socket = listening
        self.routes, self.limits, self.told = routes, limits or Limits(), told
        # Those that wait to be accepted: a client whose try is lost tries again a second later.
        listening.listen(self.limits.connections)
        self.clock = clock
        self.places = Places(self.limits, clock, _say_lost)
        self.calls = threading.BoundedSemaphore(self.limits.calls)
        self.pages = threading.BoundedSemaphore(self.limits.pages)
        self._certificate = certificate
        self.knows_clients = certificate is not None and certificate.knows_clients
        self._by_connection: dict[socket.socket, Place] = {}
        self._logged_at_s = self._logged = 0
        self._lock = threading.Lock()

    def get_request(self) -> tuple[socket.socket, object]:
        """Returns the next connection, whose handshake is still to be made."""
        connection, address = self.socket.accept()
        try:
            connection.settimeout(self.limits.head_s)
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
        place = self.places.enter(source_of(client_address), lambda: _cut(request))
        if place is None:
            return False
        with self._lock:
            self._by_connection[request] = place
        return True

    def shutdown_request(self, request: Any) -> None:
        """Ends a connection."""
        with self._lock:
            place = self._by_connection.pop(request, None)
        if place is not None:
            self.places.leave(place)
        with contextlib.suppress(OSError):
            socket.socket.shutdown(request, socket.SHUT_WR)
        self.close_request(request)

    def place_of(self, connection: socket.socket) -> Place:
        """Returns the place of a connection that has one."""
        with self._lock:
            return self._by_connection[connection]

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
            if not self.places.has_calls:
                return
            time.sleep(0.02)

    def handle_error(self, request: object, client_address: object) -> None:
        """Says nothing of clients that go away, and probes that do not know the certificate."""
        if not isinstance(sys.exc_info()[1], OSError) and self.may_log():
            LOGGER.exception("a connection failed")


def _cut(connection: socket.socket) -> None:
    """Ends a connection whose thread may be using it; the thread sees it and closes it."""
    with contextlib.suppress(OSError):
        # Not the TLS socket's own, which its thread may be using.
        socket.socket.shutdown(connection, socket.SHUT_RDWR)


def _say_lost(source: str) -> None:
    event(
        logging.WARNING,
        "too many connections or unread calls, so some were closed; most came from this client",
        client=source,
    )
