"""How fast a GPU is at the kernel of the clients, so that theirs are a fixed work and not a time.

A kernel that waited for a clock would end as early while other processes have the GPU. What is
measured here once, bare and alone, every client is told as ``rounds_per_ms``: one that found it out
by itself would do so under its slice, or next to others.
"""

import os

from libvgpu.errors import VgpuError

from ..clients import run
from ..gpu import Gpu
from ..nulldriver import built_client

_SECONDS = 60
_NS_PER_MS = 10**6


def read_rate(text: str) -> int:
    """Returns the rounds that a block does in a millisecond.

    What a launch and its events take is the same for any number of rounds, so it is the difference
    of the last two lines that counts.

    Args:
        text: what ``native/spin_rate_client.c`` says: rounds and ns a line, ever more.

    Raises:
        VgpuError: it is not that, or more rounds do not take longer.
    """
    try:
        lines = [tuple(map(int, line.split())) for line in text.splitlines()]
        (fewer, short_ns), (more, long_ns) = lines[-2:]
    except ValueError:
        raise VgpuError(
            f"spin_rate_client said {text.strip()!r}, must be two lines or more of rounds and ns"
        ) from None
    rate = round(_NS_PER_MS * (more - fewer) / (long_ns - short_ns)) if long_ns > short_ns else 0
    if more <= fewer or rate < 1:
        raise VgpuError(
            f"{fewer} rounds of a kernel took {short_ns} ns and {more} took {long_ns} ns, which "
            "tells no rate: is somebody else on the GPU?"
        )
    return rate


def measure_spin_rate(gpu: Gpu) -> int:
    """Returns the rounds that a block does in a millisecond, nobody else being on the GPU.

    Raises:
        VgpuError: there is no compiler, it or the client fails, or the GPU is in use.
    """
    with built_client(gpu.driver, "spin_rate_client") as program:
        return read_rate(run([str(program)], gpu.environment({"PATH": os.defpath}), _SECONDS))
