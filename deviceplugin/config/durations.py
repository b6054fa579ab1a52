"""Spans of time as Go writes them, as NVIDIA's config files have them: ``60s``, ``1m30s``.

Pure.
"""

import re

from libvgpu.errors import UsageError

_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "h": 3600}
_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h)")
_WHOLE = re.compile(rf"(?:{_PART.pattern})+")
#: NVIDIA's plugin takes a bare number as nanoseconds; nobody means fewer than a second of them.
_NANOSECONDS_FROM = 1_000_000_000
_MOST_S = ((1 << 63) - 1) / 1e9
FORMS = "a duration such as 60s, 1m30s or 1h, or a number of seconds"


def parse_duration_s(value: str | int, name: str) -> float:
    """Returns a span of time in seconds.

    Args:
        value: as Go writes it, or a number: of nanoseconds from 1e9 on, else of seconds.
        name: of the key, for the message.

    Raises:
        UsageError: another form, or no time at all.
    """
    if isinstance(value, int):
        span_s = value / _NANOSECONDS_FROM if value >= _NANOSECONDS_FROM else float(value)
    else:
        text = value.strip().removeprefix("+")
        if not _WHOLE.fullmatch(text):
            raise UsageError(f"{name} {value!r} is not a duration; allowed is {FORMS}")
        span_s = sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(text))
    if span_s > _MOST_S:
        raise UsageError(
            f"{name} {str(value)[:40]!r} is longer than 292 years, the longest there is"
        )
    if span_s <= 0:
        raise UsageError(f"{name} {value!r} is not above zero; allowed is {FORMS}")
    return span_s
