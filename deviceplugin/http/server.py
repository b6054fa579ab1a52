"""A small HTTP server in one thread, for scrapes, probes and `vgpuctl`: rare, short, bounded.

A selector follows all connections; one is read without blocking until its request is whole, so a
client that dawdles keeps nobody waiting, and is dropped after `READ_TIMEOUT_S`. The handler then
runs in the same thread, the answer is written without blocking too, and every answer ends its
connection. Requests are bounded (`HEAD_BYTES`, `BODY_BYTES`), and so is the number of connections:
beyond `MOST_CONNECTIONS` the oldest is dropped. Without a connection the thread sleeps.

`listen` before `start`; handlers must not block for long.
"""

import contextlib
import selectors
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import cast

from deviceplugin.log import LOGGER

from .message import BadRequest, Handler, Request, encode, parse, plain

READ_TIMEOUT_S = 3.0
WRITE_TIMEOUT_S = 5.0
MOST_CONNECTIONS = 64
_RECEIVE_BYTES = 1 << 14
_FULL_PAUSE_S = 0.1


@dataclass(slots=True)
class _Connection:
    """One client: its request is read, then ``answer`` is written, then the rest is ignored."""

    socket: socket.socket
    handler: Handler
    deadline_s: float
    received: bytearray
    answer: memoryview | None = None


class WebServer:
    """One thread that serves every listener given to it."""

    def __init__(self) -> None:
        """Serves nothing yet."""
        self._selector = selectors.DefaultSelector()
        self._connections: dict[int, _Connection] = {}
        self._listeners: list[socket.socket] = []
        self._wake, self._woken = socket.socketpair()
        self._selector.register(self._woken, selectors.EVENT_READ, lambda: None)
        self._thread = threading.Thread(target=self._serve, name="web", daemon=True)
        self._stopping = False

    def listen(self, listener: socket.socket, handler: Handler) -> None:
        """Serves ``listener``, which is closed by `stop`, with ``handler``."""
        listener.setblocking(False)
        self._listeners.append(listener)
        self._selector.register(
            listener, selectors.EVENT_READ, lambda: self._accept(listener, handler)
        )

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Ends thread, connections and listeners."""
        self._stopping = True
        if self._thread.is_alive():
            self._wake.send(b"x")
            self._thread.join()
        for connection in list(self._connections.values()):
            self._drop(connection)
        for each in (*self._listeners, self._wake, self._woken):
            each.close()
        self._selector.close()

    def _serve(self) -> None:
        while not self._stopping:
            for key, _ in self._selector.select(self._patience_s()):
                # One of the others may have dropped this one, and a new one have its number.
                if self._selector.get_map().get(key.fd) is key:
                    cast(Callable[[], None], key.data)()
            now_s = time.monotonic()
            for connection in list(self._connections.values()):
                if connection.deadline_s <= now_s:
                    self._drop(connection)

    def _patience_s(self) -> float | None:
        if not self._connections:
            return None
        first_s = min(c.deadline_s for c in self._connections.values())
        return max(0.0, first_s - time.monotonic())

    def _accept(self, listener: socket.socket, handler: Handler) -> None:
        try:
            accepted, _ = listener.accept()
        except BlockingIOError:
            return
        except OSError as error:  # no descriptor left, for example
            LOGGER.debug("accept: %s", error)
            time.sleep(_FULL_PAUSE_S)
            return
        accepted.setblocking(False)
        if len(self._connections) >= MOST_CONNECTIONS:
            self._drop(next(iter(self._connections.values())))
        deadline_s = time.monotonic() + READ_TIMEOUT_S
        connection = _Connection(accepted, handler, deadline_s, bytearray())
        self._connections[accepted.fileno()] = connection
        self._selector.register(accepted, selectors.EVENT_READ, lambda: self._read(connection))

    def _drop(self, connection: _Connection) -> None:
        del self._connections[connection.socket.fileno()]
        self._selector.unregister(connection.socket)
        connection.socket.close()

    def _read(self, connection: _Connection) -> None:
        try:
            chunk = connection.socket.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        if not chunk:
            self._drop(connection)
            return
        if connection.answer is not None:
            return  # it has been answered; closing with unread bytes would take that back
        connection.received += chunk
        try:
            request = parse(bytes(connection.received))
        except BadRequest as error:
            self._answer(connection, encode(plain(error.status, str(error))))
            return
        if request is not None:
            self._answer(connection, self._handle(connection.handler, request))

    def _handle(self, handler: Handler, request: Request) -> bytes:
        try:
            response = handler(request)
        except Exception:  # a fault of ours must not end the thread
            LOGGER.exception("%s %s failed", request.method, request.path)
            response = plain(HTTPStatus.INTERNAL_SERVER_ERROR, "the node agent failed; see its log")
        return encode(response, with_body=request.method != "HEAD")

    def _answer(self, connection: _Connection, answer: bytes) -> None:
        connection.answer = memoryview(answer)
        connection.deadline_s = time.monotonic() + WRITE_TIMEOUT_S
        self._write(connection)

    def _write(self, connection: _Connection) -> None:
        assert connection.answer is not None
        try:
            sent = connection.socket.send(connection.answer)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._drop(connection)
            return
        connection.answer = connection.answer[sent:]
        if connection.answer:
            self._selector.modify(
                connection.socket, selectors.EVENT_WRITE, lambda: self._write(connection)
            )
            return
        with contextlib.suppress(OSError):
            connection.socket.shutdown(socket.SHUT_WR)
        self._selector.modify(
            connection.socket, selectors.EVENT_READ, lambda: self._read(connection)
        )
