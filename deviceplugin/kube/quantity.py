"""Amounts as Kubernetes writes them: ``100``, ``1k``, ``2Ki``, ``1e3``. Pure.

A number, then a binary suffix (``Ki`` to ``Ei``), a decimal one (``n`` to ``E``) or an exponent.
What is no whole number counts as the next larger one, as everywhere in Kubernetes, and no amount is
larger than 2^63 - 1.
"""

import re
from fractions import Fraction

from libvgpu.errors import VgpuError

_MOST = (1 << 63) - 1
#: Of a resource that is counted one by one; no node comes near it.
MOST_UNITS = (1 << 31) - 1
#: Longer ones are nobody's amount; a short text also bounds what the arithmetic costs.
_MOST_CHARACTERS = 64
_FORM = re.compile(
    r"([+-]?)([0-9]+\.?[0-9]*|\.[0-9]+)(?:([KMGTPE]i|[numkMGTPE])|[eE]([+-]?[0-9]{1,3}))?"
)
_SUFFIXES = {
    **{f"{letter}i": Fraction(1024**power) for power, letter in enumerate("KMGTPE", 1)},
    **{letter: Fraction(1000**power) for power, letter in enumerate("kMGTPE", 1)},
    **{letter: Fraction(1, 1000**power) for power, letter in enumerate("mun", 1)},
}


def whole_amount(text: str | int) -> int:
    """Returns an amount as a whole number of at least 0.

    Raises:
        VgpuError: it is none.
    """
    number = _amount(text)[0]
    return min(_MOST, -(-number.numerator // number.denominator))


def unit_count(text: str | int) -> int:
    """Returns how many units, replicas or devices a container asks for.

    Raises:
        VgpuError: it is no amount, no whole number, or more than any node has.
    """
    number, digits, has_suffix = _amount(text)
    if number.denominator != 1:
        raise VgpuError(
            f"{str(text)!r} is not a whole number, and units are not divided; allowed are whole "
            f"numbers from 0 to {MOST_UNITS}"
        )
    if number > MOST_UNITS:
        meant = f": for {digits} write {digits}" if has_suffix else ""
        raise VgpuError(
            f"{str(text)!r} is more than any node has; allowed are whole numbers from 0 to "
            f"{MOST_UNITS}, which count units and not bytes{meant}"
        )
    return number.numerator


def _amount(text: str | int) -> tuple[Fraction, str, bool]:
    """Returns an amount, its digits and whether a suffix follows them."""
    written = str(text)
    match = _FORM.fullmatch(written) if len(written) <= _MOST_CHARACTERS else None
    if match is None or match[1] == "-":
        shown = written[:_MOST_CHARACTERS] + ("…" if len(written) > _MOST_CHARACTERS else "")
        raise VgpuError(
            f"{shown!r} is not an amount; allowed are numbers from 0 on, also with a suffix, as "
            "100, 1k, 2Ki or 1e3"
        )
    number = Fraction(match[2])
    if match[3]:
        number *= _SUFFIXES[match[3]]
    elif match[4]:
        number *= Fraction(10) ** int(match[4])
    return number, match[2], bool(match[3])
