"""Sizes as people write them: bytes, or Ki Mi Gi Ti with or without a final B."""

import re

from .errors import UsageError

_UNITS = {"": 1, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40}
_SIZE = re.compile(r"(\d+)\s?(Ki|Mi|Gi|Ti)?B?")
#: The ledger counts in 42 bits (libvgpu/src/slice/ledger.h).
MAX_BYTES = (1 << 42) - 1


def parse_size(text: str, what: str = "size", most_bytes: int = MAX_BYTES) -> int:
    """Returns the bytes that ``text`` stands for, at least 1.

    Args:
        text: for example ``1073741824``, ``1GiB``, ``1Gi`` or ``512 MiB``.
        what: the name of the value, for the message.
        most_bytes: that are allowed.

    Raises:
        UsageError: naming the value and what is allowed.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise UsageError(
            f"{what} {text!r} is not a size: give whole bytes or a whole number with "
            "Ki, Mi, Gi, KiB, MiB or GiB, for example 512MiB"
        )
    count = int(match[1]) * _UNITS[match[2] or ""]
    if count == 0:
        raise UsageError(f"{what} {text!r} is nothing: give at least 1 byte, for example 512MiB")
    if count > most_bytes:
        raise UsageError(
            f"{what} {text!r} is too large: at most {most_bytes} bytes ({format_size(most_bytes)})"
        )
    return count


def format_size(count: int) -> str:
    """Returns ``count`` bytes in the largest unit that needs at most two decimals."""
    for unit, scale in (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= scale:
            value = f"{count / scale:.2f}".rstrip("0").rstrip(".")
            return f"{value} {unit}"
    return f"{count} B"
