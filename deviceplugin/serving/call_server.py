"""HTTP/1.1 for a few clients that ask often: one thread a connection, kept open between calls.

With TLS or without. The accepting thread never waits for a client: who has made its handshake gets
a thread (`anteroom`), which reads its calls (`call_handler`). What clients may take of time,
memory, calls and connections is bounded (`Limits`); pages that are read (GET) wait for no call. A
new connection finds a place as long as not all are being answered (`call_places`), and there are
more places than calls and pages that are answered at one time. So probes need a port of their own
(`pages_on`) only where callers must show who they are, since a kubelet has nothing to show.
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

from .anteroom import Anteroom, Visitor
from .call_handler import CallHandler
from .call_places import Places
from .calls import Limits, Routes, Told
from .certificate import Certificate
from .crowds import Place

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
            certificate: None for HTTP without TLS. With one that knows clients nobody else gets
                an answer, not even a probe: serve those on another port.
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
        self._anteroom = Anteroom(listening, certificate, self.places, self.limits.head_s, clock)
        self._by_connection: dict[socket.socket, Place] = {}
        self._is_ending, self._has_ended = threading.Event(), threading.Event()
        self._logged_at_s = self._logged = 0
        self._lock = threading.Lock()

    def pages_on(self, listening: socket.socket) -> "CallServer":
        """Returns a server of the same pages for anybody, without TLS; takes over a socket."""
        pages = {route: handler for route, handler in self.routes.items() if route[0] == "GET"}
        return CallServer(listening, pages, None, self.limits, self.told, self.clock)

    def serve_forever(self, poll_interval: float = 0.5) -> None:
        """Serves until `shutdown`."""
        try:
            while not self._is_ending.is_set():
                try:
                    for each in self._anteroom.ready(poll_interval):
                        self._admit(each)
                except Exception:  # a fault of ours is for the log, and others are to be accepted
                    LOGGER.exception("accepting failed")
                    self._is_ending.wait(poll_interval)
        finally:
            self._has_ended.set()

    def shutdown(self) -> None:
        """Ends `serve_forever`, and waits for that; accepts nobody from then on."""
        self._is_ending.set()
        self._has_ended.wait()

    def server_close(self) -> None:
        """Ends what waits in the anteroom, too."""
        self._anteroom.close()
        super().server_close()

    def _admit(self, visitor: Visitor) -> None:
        connection = visitor.connection
        with self._lock:
            self._by_connection[connection] = visitor.place
        try:
            connection.settimeout(self.limits.head_s)
            self.process_request(connection, visitor.address)
        except (OSError, RuntimeError):  # it is cut, or there is no thread for it
            self.shutdown_request(connection)

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


def _say_lost(source: str) -> None:
    event(
        logging.WARNING,
        "too many connections or unread calls, so some were closed; most came from this client",
        client=source,
    )
