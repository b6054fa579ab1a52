"""Decoders that several threads may use from the start.

msgspec works out a type where it first meets it, and runs Python code on the way. Another thread
that decodes the same type meanwhile reads a table that is half made, and the process dies of
SIGSEGV (msgspec 0.22.0). So a type is worked out here, under a lock, before anything is decoded
with it: modules call these functions when they are imported.
"""

import threading
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import msgspec

_Kind = TypeVar("_Kind")
_lock = threading.RLock()


def json_decoder(kind: type[_Kind]) -> "msgspec.json.Decoder[_Kind]":
    """Returns a decoder of JSON that any number of threads may use at once."""
    with _lock:
        return msgspec.json.Decoder(kind)


def converter(kind: type[_Kind]) -> Callable[[Any], _Kind]:
    """Returns `msgspec.convert` for one type; any number of threads may call it at once."""
    json_decoder(kind)  # and with it what `convert` reads of the type
    return partial(msgspec.convert, type=kind)
