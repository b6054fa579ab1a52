"""One connection of a `CallServer`: its calls one after the other, and how each is answered.

A call that is refused before it was read to its end costs its connection, and the rest of it is
read for a moment and thrown away, so that the client sees the answer and no reset.
"""

import contextlib
import io
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Protocol, cast

from deviceplugin.log import LOGGER, event

from .call_body import Body, declared_length
from .call_places import ClientGone, Places, source_of
from .calls import PROBES, TEXT, Answer, Call, CallRefused, Limits, Routes, Told
from .crowds import Phase, Place
from .timed_streams import Pace, TimedReader, TimedWriter

FAULT = "the program failed; see its log"
_LINGER_S, _LINGER_BYTES = 1.0, 8 << 20
#: Of an honest call some hundred bytes are its head.
_LINE_BYTES, _HEAD_BYTES = 16 << 10, 64 << 10


class Serving(Protocol):
    """What a connection needs of its server."""

    routes: Routes
    limits: Limits
    told: Told
    places: Places
    calls: threading.BoundedSemaphore
    pages: threading.BoundedSemaphore
    clock: Callable[[], float]

    def place_of(self, connection: socket.socket) -> Place:
        """Returns the place of a connection that has one."""

    def may_log(self) -> bool:
        """Returns whether the log has room for one more line about a client."""


class CallHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    @property
    def _serving(self) -> Serving:
        return cast(Serving, self.server)

    def setup(self) -> None:
        super().setup()
        serving = self._serving
        limits = serving.limits
        self._told_path, self._began_s = "", 0.0
        self._place = serving.place_of(self.connection)
        self._note = partial(serving.places.note, self._place)
        self._pace = Pace(limits.grace_s, limits.bytes_s, limits.read_s)
        self._first_s = limits.head_s
        self.rfile.close()
        self._reader = TimedReader(
            self.connection, serving.clock, partial(self._note, Phase.UNREAD)
        )
        self._writer = TimedWriter(self.connection, serving.clock, self._pace)
        self.rfile = io.BufferedReader(self._reader)
        self.wfile = io.BufferedWriter(self._writer)  # an answer goes out as one piece

    def handle_one_request(self) -> None:
        limits = self._serving.limits
        self._reader.expect_head(self._first_s, limits.head_s, _HEAD_BYTES)
        try:
            self.raw_requestline = self.rfile.readline(_LINE_BYTES + 1)
            if not self.raw_requestline:
                self.close_connection = True
                return
            self._note(Phase.UNREAD)
            self._began_s, self._told_path = time.monotonic(), ""
            self.command = self.requestline = self.request_version = ""
            self._writer.begin()
            if len(self.raw_requestline) > _LINE_BYTES:
                self.send_error(HTTPStatus.REQUEST_URI_TOO_LONG)
            elif self.parse_request():
                self._answer()
            self.wfile.flush()
            self._serving.places.hold(self._place, 0)
            self._note(Phase.IDLE)
            self._first_s = limits.idle_s
        except (TimeoutError, ClientGone, OSError):
            self.close_connection = True

    def handle_expect_100(self) -> bool:
        """Lets a client send the body it asks for only where it will be read."""
        try:
            declared_length(self._headers(), self._serving.limits)
        except CallRefused:
            return True  # refused with the reason, by `_answer`
        ok = super().handle_expect_100()
        self.wfile.flush()
        return ok

    def _answer(self) -> None:
        path = self.path.partition("?")[0]
        routes = self._serving.routes
        try:
            handler = routes.get((self.command, path))
            if handler is None:
                raise self._no_route(path)
            self._told_path = path
            if self.command == "GET":
                if self.headers.get("Content-Length", "0") != "0":
                    self.close_connection = True  # nobody reads it
                turn: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
                if path not in PROBES:
                    turn = _turn(self._serving.pages, f"{self._serving.limits.pages} pages")
                with turn:
                    self._note(Phase.ANSWERING)
                    answer = handler(Call(path, headers=self._headers()))
                self._say(answer)
                return
            length = declared_length(self._headers(), self._serving.limits)
            self._reader.expect_body(self._pace)
            take = partial(self._serving.places.take, self._place)
            content = Body(self.rfile, self._serving.limits, take).read(length)
            with _turn(self._serving.calls, f"{self._serving.limits.calls} calls"):
                self._note(Phase.ANSWERING)
                deadline_s = time.monotonic() + self._serving.limits.answer_s
                answer = handler(Call(path, content, deadline_s, self._headers()))
            del content
            # Without the turn: a client that does not read its answer keeps no call waiting.
            self._say(answer)
        except CallRefused as refused:
            self._refuse(refused.status, str(refused))
        except (TimeoutError, ClientGone, OSError):
            raise
        except Exception:  # a fault of ours is an answer, and its trace is for the log
            LOGGER.exception("%s %s failed", self.command, path)
            self._refuse(HTTPStatus.INTERNAL_SERVER_ERROR, FAULT)

    def _no_route(self, path: str) -> CallRefused:
        known = self._serving.routes
        methods = [method for method, route in known if route == path]
        if methods:
            return CallRefused(
                HTTPStatus.METHOD_NOT_ALLOWED, f"{path} must be called with {' or '.join(methods)}"
            )
        paths = ", ".join(sorted({route for _, route in known}))
        return CallRefused(HTTPStatus.NOT_FOUND, f"there is no {path[:200]}, only {paths}")

    def _headers(self) -> dict[str, str]:
        return {name.lower(): value for name, value in self.headers.items()}

    def _refuse(self, status: int, why: str) -> None:
        if self._serving.may_log():
            event(
                logging.WARNING,
                "a call was refused",
                status=int(status),
                client=source_of(self.client_address),
                reason=why,
            )
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
        self._serving.places.hold(self._place, len(answer.body))
        self._note(Phase.UNSENT)
        self._writer.begin()
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
            self._serving.told(self._told_path, int(answer.status), seconds)

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing of calls that go well."""


@contextlib.contextmanager
def _turn(turns: threading.BoundedSemaphore, most: str) -> Iterator[None]:
    if not turns.acquire(blocking=False):
        raise CallRefused(
            HTTPStatus.SERVICE_UNAVAILABLE,
            f"{most} are being answered, which is the most at one time; try again",
        )
    try:
        yield
    finally:
        turns.release()
