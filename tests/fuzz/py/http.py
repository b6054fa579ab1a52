"""Connections of anybody to webhook and extender: heads, bodies in chunks, several calls."""

import re
import socket
import threading

from deviceplugin.serving.call_handler import CallHandler
from deviceplugin.serving.call_places import Places
from deviceplugin.serving.calls import Answer, Limits
from deviceplugin.serving.crowds import Place
from fuzz.shapes import Shapes

_HEADS = (
    b"POST /pods HTTP/1.1\r\n", b"GET /healthz HTTP/1.0\r\n", b"POST /x HTTP/1.1\r\n",
    b"GET /pages?a=b HTTP/1.1\r\n", b"GET / HTTP/0.9\r\n", b"GET /\r\n", b"PUT /pods HTTP/1.1\r\n",
    b"POST /pods HTTP/9.9\r\n", b"POST /pods HTTP/1.1 x\r\n", b"\r\n",
)  # fmt: skip
_LINES = (
    b"Content-Length: 3\r\n", b"Content-Length: 4096\r\n", b"Content-Length: -1\r\n",
    b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding: gzip\r\n", b"Connection: close\r\n",
    b"Connection: keep-alive\r\n", b"Expect: 100-continue\r\n", b" folded\r\n", b"x\r\n", b":\r\n",
    b"Content-Length: \xd9\xa3\r\n", b"A: " + b"b" * 20_000 + b"\r\n",
)  # fmt: skip
_PIECES = (
    b"\r\n", b"abc", b"3\r\nabc\r\n", b"0\r\n\r\n", b"0\r\nTrailer: x\r\n\r\n", b"3;a=b\r\nabc\r\n",
    b"ffffffffffffffff\r\n", b"400\r\n", b"g\r\n", b"2\r\nabc\r\n", b"-1\r\n", b"\n",
)  # fmt: skip
_LIMITS = Limits(body_bytes=1000, bodies_bytes=1500, calls=1, pages=1)


class _Server:
    """What a connection needs of its server (`call_handler.Serving`)."""

    limits, knows_clients = _LIMITS, False
    told = staticmethod(lambda path, status, seconds: None)

    def __init__(self, now_s: float = 0.0) -> None:
        self.clock = lambda: now_s
        self.routes = {
            ("POST", "/pods"): lambda call: Answer(b"pods"),
            ("GET", "/healthz"): lambda call: Answer(b"ok"),
            ("GET", "/pages"): lambda call: Answer(b"page"),
        }
        self.places = Places(_LIMITS, self.clock)
        self.calls, self.pages = threading.BoundedSemaphore(1), threading.BoundedSemaphore(1)

    def place_of(self, connection: socket.socket) -> Place:
        """Returns a new one."""
        place = self.places.enter("a", lambda: None)
        assert place is not None
        return place

    def may_log(self) -> bool:
        """The log is no part of this."""
        return False


class _Handler(CallHandler):
    disable_nagle_algorithm = False  # of TCP alone


def one(data: bytes) -> None:
    """Sends one connection's bytes; every answer is one of HTTP, and none says that we failed."""
    shapes = Shapes(data)
    how = shapes.byte()
    sent = shapes.rest() if how & 1 else b"".join(_made(shapes))
    server = _Server()
    if how >= 240:  # others are being answered
        server.calls.acquire()
        server.pages.acquire()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.setblocking(False)
        theirs.send(sent[:100_000])
        theirs.shutdown(socket.SHUT_WR)
        _Handler(ours, ("127.0.0.1", 1), server)  # type: ignore[arg-type]
        ours.shutdown(socket.SHUT_RDWR)
        said = theirs.recv(1 << 20)
    assert re.search(rb"^HTTP/1\.\d 500 ", said, re.M) is None, said[:200]


def _made(shapes: Shapes) -> list[bytes]:
    parts: list[bytes] = []
    while shapes and len(parts) < 40:
        of = shapes.pick((_HEADS, _LINES, _LINES, _PIECES, _PIECES))
        parts.append(shapes.some() if shapes.byte() > 220 else shapes.pick(of))
    return parts
