"""The body of a call: read piece by piece, and counted before it is decoded.

So memory is taken only for what has come. What a text decodes to can take forty times the memory of
the text: a list of short names, or of empty objects. What honest clients send is far below the
numbers here.
"""

from collections.abc import Callable, Mapping
from enum import Enum, auto
from http import HTTPStatus
from io import BufferedIOBase

from libvgpu._native import ffi, lib

from .call_places import ClientGone
from .calls import CallRefused, Limits

_PIECE_BYTES = 64 << 10
_LINE_BYTES = 256
#: Entries of one list, and values of one object of the API with all that is in it.
MOST = 100_000
#: Real objects have more bytes than this to a value.
_BYTES_EACH = 16


class Size(Enum):
    """What a text is decoded to."""

    FLAT = auto()  # the entries of the outermost list or object
    OBJECT = auto()  # one object of the API
    OBJECTS = auto()  # many, of which each part is decoded


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
    """One body."""

    def __init__(self, file: BufferedIOBase, limits: Limits, take: Callable[[int], bool]) -> None:
        """Reads nothing yet.

        Args:
            take: takes room for so many bytes; returns False where that would be too much.
        """
        self._file, self._limits, self._take = file, limits, take

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
            if not self._take(len(piece)):
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


def too_many(text: bytes | memoryview, size: Size) -> str:
    """Returns what is wrong with a JSON text that holds too much; empty if it does not."""
    levels = 1 if size is Size.FLAT else lib.JSON_ALL_LEVELS
    most = max(MOST, len(text) // _BYTES_EACH) if size is Size.OBJECTS else MOST
    count = lib.json_count(ffi.from_buffer("char[]", text), len(text), levels)
    if count <= most:
        return ""
    what = "entries" if size is Size.FLAT else "values"
    return f"it has {count} {what}, and at most {most} are read"
