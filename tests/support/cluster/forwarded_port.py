"""The server's side of a port-forward by WebSocket, as kubelets and runtimes have it.

Only the standard library: `stand_in_kubectl` imports it by itself.
"""

import base64
import hashlib
import struct
from collections.abc import Callable, Iterable
from http.server import BaseHTTPRequestHandler

DATA, ERROR = b"\0", b"\1"
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_PIECE_BYTES = 1 << 15


def serve(
    handler: BaseHTTPRequestHandler, port: int, answers: Callable[[bytes], Iterable[bytes]]
) -> None:
    """Answers the one request that comes through.

    Args:
        handler: of the request to forward a port.
        answers: returns pieces of the answer to a request's head; of an OSError the other side is
            told.
    """
    assert handler.headers["Sec-WebSocket-Protocol"] == "v4.channel.k8s.io"
    key = handler.headers["Sec-WebSocket-Key"].encode()
    digest = hashlib.sha1(key + _GUID, usedforsecurity=False).digest()
    handler.protocol_version = "HTTP/1.1"
    handler.send_response(101)
    handler.send_header("Upgrade", "websocket")
    handler.send_header("Connection", "Upgrade")
    handler.send_header("Sec-WebSocket-Accept", base64.b64encode(digest).decode())
    handler.send_header("Sec-WebSocket-Protocol", "v4.channel.k8s.io")
    handler.end_headers()
    handler.close_connection = True
    for channel in (DATA, ERROR):
        handler.wfile.write(_message(channel + struct.pack("<H", port)))
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += _received(handler)
    try:
        for piece in answers(head):
            for at in range(0, len(piece), _PIECE_BYTES):
                handler.wfile.write(_message(DATA + piece[at : at + _PIECE_BYTES]))
    except OSError as error:
        handler.wfile.write(_message(ERROR + f"error forwarding port {port}: {error}".encode()))
    handler.wfile.write(b"\x88\0")


def _message(content: bytes) -> bytes:
    length = len(content)
    if length < 126:
        return struct.pack("!BB", 0x82, length) + content
    return struct.pack("!BBH", 0x82, 126, length) + content


def _received(handler: BaseHTTPRequestHandler) -> bytes:
    first, length = handler.rfile.read(2)
    assert (first, length & 0x80) == (0x82, 0x80), "one whole message, masked"
    length &= 0x7F
    if length == 126:
        (length,) = struct.unpack("!H", handler.rfile.read(2))
    mask, content = handler.rfile.read(4), handler.rfile.read(length)
    found = bytes(byte ^ mask[at % 4] for at, byte in enumerate(content))
    assert found[:1] == DATA
    return found[1:]
