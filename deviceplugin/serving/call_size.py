"""How much the body of a call may hold, found out before it is decoded.

What a text decodes to can take forty times the memory of the text: a list of short names, or of
empty objects. What honest clients send is far below these numbers. Pure.
"""

from enum import Enum, auto

from libvgpu._native import ffi, lib

#: Entries of one list, and values of one object of the API with all that is in it.
MOST = 100_000
#: Real objects have more bytes than this to a value.
_BYTES_EACH = 16


class Size(Enum):
    """What a text is decoded to."""

    FLAT = auto()  # the entries of the outermost list or object
    OBJECT = auto()  # one object of the API
    OBJECTS = auto()  # many, of which each part is decoded


def too_many(text: bytes | memoryview, size: Size) -> str:
    """Returns what is wrong with a JSON text that holds too much; empty if it does not."""
    levels = 1 if size is Size.FLAT else lib.JSON_ALL_LEVELS
    most = max(MOST, len(text) // _BYTES_EACH) if size is Size.OBJECTS else MOST
    count = lib.json_count(ffi.from_buffer("char[]", text), len(text), levels)
    if count <= most:
        return ""
    what = "entries" if size is Size.FLAT else "values"
    return f"it has {count} {what}, and at most {most} are read"
