"""A cap that is raised while a launch waits for its debt is not slept over."""

import time

import pytest

from libvgpu.sim import Machine
from support.shim.slices import SliceOf

GIB = 1 << 30
LOW_PERCENT = 2
KERNEL_SECONDS = 0.2
WAITS_BEFORE_SECONDS = 0.5
MARGIN_SECONDS = 0.2
UNCAPPED_SECONDS = 0.5
HALF_SECONDS = KERNEL_SECONDS * 100 / 50 + MARGIN_SECONDS  # the whole debt at the new price

# At LOW_PERCENT a kernel that was measured is a debt of ten seconds, for which the next one waits.
# (A first launch that itself took long is not measured: then it is a later one.)
DEBT = """
import sys
from support.shim.cuda_client import *
open_context()
spinner = Spinner(int(sys.argv[1]))
while True:
    spinner.launch()
    print(time.monotonic(), flush=True)
    spinner.wait()
"""

pytestmark = pytest.mark.virtual


def wait_until_held(machine: Machine) -> None:
    """Returns once kernels have run, and then no further one for WAITS_BEFORE_SECONDS."""
    seen, since = 0, time.monotonic()
    while seen == 0 or time.monotonic() - since < WAITS_BEFORE_SECONDS:
        launches = sum(client.launches for client in machine.books()[0].clients)
        if launches != seen:
            seen, since = launches, time.monotonic()
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("raised_percent", "most_seconds"),
    [(100, UNCAPPED_SECONDS), (50, HALF_SECONDS)],
    ids=["to 100", "to 50"],
)
def test_a_waiting_launch_goes_soon_after_the_cap_is_raised(
    machine: Machine, slice_of: SliceOf, raised_percent: int, most_seconds: float
) -> None:
    part = slice_of(machine, memory_bytes=GIB, core_percent=LOW_PERCENT)
    process = part.start(DEBT, str(int(KERNEL_SECONDS * 1e9)))
    wait_until_held(machine)

    raised_at = time.monotonic()
    part.change(core_percent=raised_percent)
    assert process.stdout is not None
    launched_at = next(at for line in process.stdout if (at := float(line)) > raised_at)

    assert launched_at - raised_at < most_seconds
    assert part.usage().devices[0].held_ns > WAITS_BEFORE_SECONDS * 1e9
