"""JSON that Go programs write for structs without tags: keys are the fields' names, in any case.

Go writes ``NodeNames`` and reads it in any case, so other clients write ``nodenames`` and get on
with schedulers' extenders written in Go. Pure. What is not looked at is not decoded: a value is
passed over or kept as it came (`Raw`).
"""

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from deviceplugin.serving.call_body import Size, too_many
from libvgpu.decoding import json_decoder
from libvgpu.errors import UsageError

_Kind = TypeVar("_Kind")
Fields = Mapping[str, msgspec.Raw]
_FIELDS = json_decoder(dict[str, msgspec.Raw])
_NULL = b"null"


class CallMalformed(UsageError):  # noqa: N818 - it is the call that is malformed
    """What was sent is no call of this kind; the message says why."""


def fields(body: bytes | memoryview, what: str) -> Fields:
    """Returns the values of an object by their keys in lower case, without those that are null.

    Args:
        what: it should be, as the error calls it.

    Raises:
        CallMalformed: it is no JSON object, or too large a one.
    """
    found = decoded(body, _FIELDS, what, Size.FLAT)
    return {key.lower(): value for key, value in found.items() if bytes(value) != _NULL}


def field(
    found: Fields,
    name: str,
    decoder: msgspec.json.Decoder[_Kind],
    what: str,
    size: Size = Size.OBJECT,
) -> _Kind | None:
    """Returns one value; None where it is absent or null.

    Args:
        size: what the decoder makes of it.

    Raises:
        CallMalformed: it has another form, or holds too much.
    """
    value = found.get(name.lower())
    if value is None:
        return None
    return decoded(value, decoder, f"{what}'s {name}", size)


def decoded(
    value: bytes | memoryview | msgspec.Raw,
    decoder: msgspec.json.Decoder[_Kind],
    what: str,
    size: Size = Size.OBJECT,
) -> _Kind:
    """Returns a body, or a value that was kept as it came.

    Args:
        size: what the decoder makes of it.

    Raises:
        CallMalformed: it has another form, or holds too much.
    """
    why = too_many(memoryview(value), size)
    if why:
        raise CallMalformed(f"{what} is too large: {why}")
    try:
        return decoder.decode(value)
    except RecursionError:
        raise CallMalformed(f"{what} is malformed: it is nested too deeply") from None
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise CallMalformed(f"{what} is malformed: {str(error)[:300]}") from None
