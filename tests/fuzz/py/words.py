"""What users type: simulated machines, MIG layouts, sizes and percentages."""

import contextlib

from fuzz.shapes import Shapes
from libvgpu.errors import UsageError
from libvgpu.sim.spec import MAX_GPUS, parse_spec
from libvgpu.sizes import MAX_BYTES, MIN_BYTES, format_size, parse_percent, parse_size

_WORDS = (
    "h100", "a100-40g", "t4", "*", "2", ",", "/mig", "/mig=", "1g.5gb", "3g.20gb*2", "+", "@",
    "lab", "driver=", "570.124.06", "/cuda12.4", "/cuda13.0", "all", "none", "1.5", "GiB", "Mi",
    "k", "B", "%", "50", " ", "0", ".", "1e3", "-",
)  # fmt: skip


def one(data: bytes) -> None:
    """Reads one text as each of them."""
    shapes = Shapes(data)
    how = shapes.byte()
    text = "".join(shapes.text(_WORDS) for _ in range(how % 12))
    text = text.encode("utf-8", "replace").decode().replace("\0", "")  # as a command line has it
    with contextlib.suppress(UsageError):
        spec = parse_spec(text, fast=bool(how & 128))
        assert 0 < len(spec.profiles) <= MAX_GPUS
    with contextlib.suppress(UsageError):
        size = parse_size(text, may_be_zero=bool(how & 16), may_be_bare=bool(how & 32))
        assert size == 0 or (1 if how & 32 else MIN_BYTES) <= size <= MAX_BYTES
        format_size(size)
    percent = parse_percent(shapes.number() if how & 64 else text)
    assert percent is None or percent.whole is None or percent.whole == percent.value
