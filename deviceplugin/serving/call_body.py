"""The body of a call, read piece by piece, so that memory is taken only for what has come."""

from collections.abc import Mapping
from http import HTTPStatus
from io import BufferedIOBase
from typing import Protocol

from .call_places import ClientGone
from .calls import CallRefused, Limits

_PIECE_BYTES = 64 << 10
_LINE_BYTES = 256


class Room(Protocol):
    """Where the bytes of bodies are counted."""

    def take(self, count: int) -> bool:
        """Takes some; returns False where that would be too much."""


def declared_length(headers: Mapping[str, str], limits: Limits) -> int | None:
    """Returns how long a body is, None where it comes in chunks.

    Raises:
        CallRefused: nobody knows how long it is, or it is too long.
    """
    length, coding = headers.get("content-length"), headers.get("transfer-encoding")
    if coding is not None:
        if coding.strip().lower() != "chunked" or length is not None:
            raise CallRefused(
                HTTPStatus.BAD_REQUEST,
                f"Transfer-Encoding is {coding[:80]!r}, allowed is chunked, without Content-Length",
            )
        return None
    if length is None:
        raise CallRefused(
            HTTPStatus.LENGTH_REQUIRED, "the call has no Content-Length and is not chunked"
        )
    if not (length.isascii() and length.isdecimal()) or len(length) > 18:
        raise CallRefused(HTTPStatus.BAD_REQUEST, f"Content-Length {length[:80]!r} is not a number")
    _check(int(length), limits)
    return int(length)


class Body:
    """One body; what of it was read is counted in the room."""

    def __init__(self, file: BufferedIOBase, limits: Limits, room: Room) -> None:
        """Reads nothing yet."""
        self._file, self._limits, self._room = file, limits, room

    def read(self, length: int | None) -> bytes:
        """Returns all of it.

        Args:
            length: as `declared_length` returned it.

        Raises:
            CallRefused: it is too long or malformed, or there is no room for it now.
            ClientGone: it ends early, or the connection has lost its place.
            TimeoutError: it takes too long.
        """
        if length is not None:
            return bytes(self._some(length, bytearray()))
        found = bytearray()
        while size := self._chunk_size():
            _check(len(found) + size, self._limits)
            self._some(size, found)
            if self._line() != b"":
                raise CallRefused(HTTPStatus.BAD_REQUEST, "a chunk is longer than it says")
        while self._line() != b"":
            pass
        return bytes(found)

    def _some(self, count: int, into: bytearray) -> bytearray:
        while count:
            piece = self._file.read(min(count, _PIECE_BYTES))
            if not piece:
                raise ClientGone
            if not self._room.take(len(piece)):
                raise CallRefused(
                    HTTPStatus.SERVICE_UNAVAILABLE,
                    f"the calls under way have {self._limits.bodies_bytes} bytes, the most that "
                    "is kept at one time; try again",
                )
            into += piece
            count -= len(piece)
        return into

    def _chunk_size(self) -> int:
        text = self._line().partition(b";")[0].strip()
        try:
            if not text or len(text) > 15 or not text.isalnum():
                raise ValueError
            return int(text, 16)
        except ValueError:
            raise CallRefused(
                HTTPStatus.BAD_REQUEST,
                f"{text[:20].decode('latin-1')!r} is not the size of a chunk",
            ) from None

    def _line(self) -> bytes:
        line = self._file.readline(_LINE_BYTES)
        if not line:
            raise ClientGone
        if not line.endswith(b"\n"):
            raise CallRefused(HTTPStatus.BAD_REQUEST, "a line between chunks is too long")
        return line.rstrip(b"\r\n")


def _check(length: int, limits: Limits) -> None:
    if length > limits.body_bytes:
        raise CallRefused(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            f"the body has {length} bytes, and at most {limits.body_bytes} are read",
        )
