"""Sizes, percentages and whole numbers: the one parser of each, and how sizes are shown.

A size is a number with a unit. A bare number is refused, because a reader who counts in GiB and a
program that counts in bytes would both think that they are right. Case counts only where Kubernetes
and Docker differ:

* ``Ki Mi Gi Ti`` and ``KiB MiB GiB TiB``, in any case: powers of 1024.
* ``K M G T`` and ``KB MB GB TB``: powers of 1000, as in Kubernetes and SI.
* ``k m g t`` and ``kb mb gb tb``: powers of 1024, as Docker reads them.
* ``B`` or ``b``: bytes.

A part of a byte is dropped. A percentage is a number with or without ``%``.
"""

import re
from dataclasses import dataclass
from fractions import Fraction

from .errors import UsageError

#: Less than this is no slice: the smallest context takes more.
MIN_BYTES = 1 << 20
#: The ledger counts in 42 bits (libvgpu/src/slice/ledger.h).
MAX_BYTES = (1 << 42) - 1

_DIGITS = r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*"
_NUMBER = re.compile(_DIGITS + r"([A-Za-z%]*)\s*")
_LETTERS = "KMGT"
_UNITS = {"B": 1, "b": 1}
for _power, _letter in enumerate(_LETTERS, 1):
    _UNITS |= {_letter: 1000**_power, f"{_letter}B": 1000**_power}
    _UNITS |= {_letter.lower(): 1024**_power, f"{_letter.lower()}b": 1024**_power}
#: In lower case, since the ``i`` leaves no doubt.
_BINARY = {f"{c.lower()}i{b}": 1024**n for n, c in enumerate(_LETTERS, 1) for b in ("", "b")}

#: The same for JSON Schema, which has no flag for case.
SIZE_PATTERN = f"^{_DIGITS}([KkMmGgTt][Ii][Bb]?|[KMGT]B?|[kmgt]b?|[Bb])\\s*$"
PERCENT_PATTERN = f"^{_DIGITS}%?\\s*$"

_MOST_CHARACTERS = 64  # more digits than any value needs, and few enough to count with
_MOST_DIGITS = 18  # of what fits into 63 bits
_SHOWN_CHARACTERS = 40
_UNITS_ALLOWED = "a number with Ki, Mi, Gi or Ti (K, M, G, T for powers of 1000), for example 6Gi"
#: Nobody who writes a bare number below these means bytes.
_SURELY_GIB, _SURELY_NOT_BYTES = 1024, 1 << 20

#: Text, or a number as YAML reads it.
Written = str | int | float


def format_size(count: int) -> str:
    """Returns ``count`` bytes in the largest unit that needs at most two decimals."""
    for unit, scale in (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= scale:
            value = f"{count / scale:.2f}".rstrip("0").rstrip(".")
            return f"{value} {unit}"
    return f"{count} B"


def parse_size(
    written: Written,
    what: str = "size",
    most_bytes: int = MAX_BYTES,
    *,
    may_be_zero: bool = False,
    may_be_bare: bool = False,
) -> int:
    """Returns the bytes that ``written`` stands for, at least 1 MiB.

    Args:
        written: for example ``6Gi``, ``1.5GiB``, ``512m`` or ``4294967296B``.
        what: the name of the value, for the message.
        most_bytes: that are allowed.
        may_be_zero: 0, with or without a unit, has a meaning.
        may_be_bare: a number without a unit is bytes, and any size from 1 byte on is allowed, as
            earlier versions had it.

    Raises:
        UsageError: naming the value, why it cannot be and what is allowed.
    """
    text, shown = _text(written)
    if len(text) > _MOST_CHARACTERS:
        raise UsageError(
            f"{what} {shown} is too long for a size: at most {_MOST_CHARACTERS} characters are "
            f"allowed, as {_UNITS_ALLOWED}"
        )
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise UsageError(f"{what} {shown} is not a size: give {_UNITS_ALLOWED}")
    number, unit = Fraction(match[1]), match[2]
    if may_be_zero and number == 0 and (not unit or _scale(unit) is not None):
        return 0
    scale = _scale(unit) if unit else 1
    if scale is None:
        raise UsageError(
            f"{what} {shown} is not a size: {unit!r} is not a unit of memory; give {_UNITS_ALLOWED}"
        )
    if not number:
        raise UsageError(f"{what} {shown} is nothing: give at least 1Mi, for example 512Mi")
    if not unit and not may_be_bare:
        raise UsageError(
            f"{what} {shown} has no unit: {match[1]} means bytes here; "
            f"did you mean {_likely(match[1], number)}?"
        )
    count = int(number * scale)
    if count < (1 if may_be_bare else MIN_BYTES):
        raise UsageError(
            f"{what} {shown} is too small: it is {format_size(count)}, and the least is 1Mi"
        )
    if count > most_bytes:
        raise UsageError(
            f"{what} {shown} is too large: at most {most_bytes} bytes ({format_size(most_bytes)})"
        )
    return count


def whole_number(text: str) -> int | None:
    """Returns the number that some digits stand for; None: they are none, or far too many.

    `int` alone takes other scripts' digits too, and fails on more than 4300 of them.
    """
    is_number = text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS
    return int(text) if is_number else None


@dataclass(frozen=True, slots=True)
class Percent:
    """A percentage as written.

    Attributes:
        value: exactly.
        has_sign: it was written with ``%``.
    """

    value: Fraction
    has_sign: bool

    @property
    def whole(self) -> int | None:
        """The value, None where it is not a whole number."""
        return int(self.value) if self.value.denominator == 1 else None


def parse_percent(written: Written) -> Percent | None:
    """Returns the percentage that ``written`` stands for, None if it is no percentage.

    What range is allowed depends on the value, so the caller checks it, and says what is allowed.

    Args:
        written: for example ``50``, ``50%`` or ``12.5 %``.
    """
    text = _text(written)[0]
    match = _NUMBER.fullmatch(text) if len(text) <= _MOST_CHARACTERS else None
    if match is None or match[2] not in ("", "%"):
        return None
    return Percent(Fraction(match[1]), bool(match[2]))


def _text(written: Written) -> tuple[str, str]:
    """Returns a value as text, and as messages show it."""
    try:
        text = str(written)
    except ValueError:  # more digits than Python turns into text
        text = "9" * (_MOST_CHARACTERS + 1)
    if len(text) > _MOST_CHARACTERS:
        return text[: _MOST_CHARACTERS + 1], f"{text[:_SHOWN_CHARACTERS]!r}…"
    return text, repr(text)


def _scale(unit: str) -> int | None:
    """Returns how many bytes a unit has, None if the unit is unknown."""
    return _UNITS.get(unit) or _BINARY.get(unit.lower())


def _likely(digits: str, number: Fraction) -> str:
    """Returns what somebody who wrote a number without a unit is likely to have meant."""
    if number < _SURELY_GIB:
        return f"{digits}Gi"
    if number < _SURELY_NOT_BYTES:
        return f"{digits}Mi or {digits}Gi"
    for unit, scale in (("Gi", 1 << 30), ("Mi", 1 << 20)):
        if number % scale == 0:
            return f"{int(number / scale)}{unit}, or {digits}B for bytes"
    return f"{int(number)}B"
