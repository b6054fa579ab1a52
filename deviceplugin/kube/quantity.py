"""Amounts as Kubernetes writes them: ``100``, ``1k``, ``2Ki``, ``1e3``. Pure.

A number, then a binary suffix (``Ki`` to ``Ei``), a decimal one (``n`` to ``E``) or an exponent.
What is no whole number counts as the next larger one, as everywhere in Kubernetes, and no amount is
larger than 2^63 - 1.
"""

import re
from fractions import Fraction

from libvgpu.errors import VgpuError

_MOST = (1 << 63) - 1
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
    match = _FORM.fullmatch(str(text)) if len(str(text)) <= _MOST_CHARACTERS else None
    if match is None or match[1] == "-":
        raise VgpuError(
            f"{str(text)[:_MOST_CHARACTERS]!r} is no amount; allowed are numbers from 0 on, also "
            "with a suffix, as 100, 1k, 2Ki or 1e3"
        )
    number = Fraction(match[2])
    if match[3]:
        number *= _SUFFIXES[match[3]]
    elif match[4]:
        number *= Fraction(10) ** int(match[4])
    return min(_MOST, -(-number.numerator // number.denominator))
