"""What a watch of the API server sends: one JSON object a line. Pure."""

from collections.abc import Iterable, Iterator
from enum import StrEnum

import msgspec

from libvgpu.decoding import json_decoder

from .api_client import ApiUnreachable

#: No object of etcd has more than some MB.
MOST_LINE_BYTES = 8 << 20


class EventType(StrEnum):
    """What became of an object."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


class WatchEvent(msgspec.Struct):
    """One line: an `EventType`, ``BOOKMARK`` or ``ERROR``, and the object as it came."""

    type: str
    object: msgspec.Raw


class ObjectMetadata(msgspec.Struct, rename="camel"):
    """Which object it is, and when."""

    resource_version: str = ""
    uid: str = ""
    name: str = ""
    namespace: str = ""


class AnyObject(msgspec.Struct):
    """What any object of the API says, and a Status."""

    metadata: ObjectMetadata = msgspec.field(default_factory=ObjectMetadata)
    code: int = 0
    message: str = ""


_ANY = json_decoder(AnyObject)


def any_object(content: bytes | msgspec.Raw) -> AnyObject:
    """Returns what can be read of an object; nothing of one that is malformed."""
    try:
        return _ANY.decode(content)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return AnyObject()


def lines(chunks: Iterable[bytes], most_bytes: int = MOST_LINE_BYTES) -> Iterator[bytes]:
    """Gives the whole lines of a stream, without their ends; empty ones are left out.

    Raises:
        ApiUnreachable: a line is longer than ``most_bytes``.
    """
    rest = bytearray()
    for chunk in chunks:
        *whole, last = chunk.split(b"\n")
        for part in whole:
            _check(len(rest) + len(part), most_bytes)
            if rest or part:
                yield bytes(rest) + part
            rest.clear()
        _check(len(rest) + len(last), most_bytes)
        rest += last


def _check(length: int, most_bytes: int) -> None:
    if length > most_bytes:
        raise ApiUnreachable(f"a line of a watch is longer than {most_bytes} bytes")
