"""HTTP at a port inside a pod, as `kubectl port-forward` does it, over the one `kubectl proxy`.

The kubelet connects to that port from within the pod's network, its loopback included. What is sent
goes in WebSocket messages (RFC 6455). The first byte of each says on which channel: bytes of the
connection, or why there is none. A kubectl for each pod would cost a start for each, and would open
a port here that any local user reaches.
"""

import base64
import http.client
import io
import os
import socket
import struct
from http import HTTPStatus

from .refusals import NoAnswer, refusal

_DATA, _ERROR = 0, 1
_BINARY, _CLOSE, _PING, _PONG = 2, 8, 9, 10
_FINAL, _MASKED = 0x80, 0x80
_LENGTH_IN_2, _LENGTH_IN_8 = 126, 127
_MOST_BYTES = 1 << 20
#: With these begins each channel: the number of the port.
_PORT_BYTES = 2
_HEADERS = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Protocol": "v4.channel.k8s.io",
}


def through(connection: http.client.HTTPConnection, path: str) -> http.client.HTTPConnection:
    """Returns a connection to a port of a pod; it ends with the one that leads there.

    Args:
        connection: to `kubectl proxy`.
        path: of the API server, with the port.

    Raises:
        ApiRefusal: this user may not.
        NoAnswer: nobody leads there.
    """
    key = base64.b64encode(os.urandom(16)).decode()
    connection.request("GET", path, headers=_HEADERS | {"Sec-WebSocket-Key": key})
    answer = connection.getresponse()
    if answer.status != HTTPStatus.SWITCHING_PROTOCOLS:
        raise refusal(answer.status, answer.read(_MOST_BYTES), path)
    inner = http.client.HTTPConnection("localhost")
    # What http.client has read ahead is in the answer's file.
    inner.sock = _Forwarded(connection.sock, answer.fp)
    return inner


class _Forwarded(io.RawIOBase):
    """As much of a socket as `http.client` uses; reads what comes on the channel of data."""

    def __init__(self, outer: socket.socket, answers: io.BufferedIOBase) -> None:
        self._outer, self._answers = outer, answers
        self._skip = {_DATA: _PORT_BYTES, _ERROR: _PORT_BYTES}
        self._left = b""

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        """Does nothing: `http.client` closes a socket before it has read what came by it."""

    def sendall(self, data: bytes) -> None:
        self._outer.sendall(frame(_DATA, data))

    def readinto(self, buffer: "memoryview") -> int:  # type: ignore[override]
        while not self._left:
            self._left = self._next()
        given, self._left = self._left[: len(buffer)], self._left[len(buffer) :]
        buffer[: len(given)] = given
        return len(given)

    def _next(self) -> bytes:
        """Returns what the next message has of data.

        Raises:
            NoAnswer: it says why there is none, or there is no further one.
        """
        kind, message = self._message()
        if kind in (_PING, _PONG):
            return b""
        if kind != _BINARY or not message or message[0] not in self._skip:
            raise NoAnswer("the connection to its pod ended")
        channel, content = message[0], message[1:]
        skipped = min(self._skip[channel], len(content))
        self._skip[channel] -= skipped
        content = content[skipped:]
        if channel == _ERROR and content:
            raise NoAnswer(content.decode(errors="replace"))
        return content

    def _message(self) -> tuple[int, bytes]:
        first, length = self._exactly(2)
        if length == _LENGTH_IN_2:
            (length,) = struct.unpack("!H", self._exactly(2))
        elif length == _LENGTH_IN_8:
            (length,) = struct.unpack("!Q", self._exactly(8))
        if not first & _FINAL or length > _MOST_BYTES:
            return _CLOSE, b""
        return first & ~_FINAL, self._exactly(length)

    def _exactly(self, length: int) -> bytes:
        found = self._answers.read(length)
        if len(found) < length:
            raise NoAnswer("the connection to its pod ended")
        return found


def frame(channel: int, data: bytes) -> bytes:
    """Returns a message of a client: it is masked, as servers insist."""
    message = bytes([channel]) + data
    length = len(message)
    head = struct.pack("!BB", _FINAL | _BINARY, _MASKED | min(length, _LENGTH_IN_2))
    if length >= _LENGTH_IN_2:
        head += struct.pack("!H", length)
    mask = os.urandom(4)
    return head + mask + bytes(byte ^ mask[at % 4] for at, byte in enumerate(message))
