"""What killed processes held is free again for the next one, from its first look on."""

import signal

from support.lines import expect
from support.shim.slices import Slice

GIB = 1 << 30
HOLDERS = 3
HELD_BYTES = 300 << 20

HOLD = """
import sys
from support.shim.cuda_client import *
open_context()
check(driver.cuMemAlloc(int(sys.argv[1])))
print("held", flush=True)
sys.stdin.readline()
"""
LOOK = """
from support.shim.cuda_client import *
open_context()
print(*check(driver.cuMemGetInfo()))
"""


def test_what_killed_processes_held_is_shown_as_free(part: Slice) -> None:
    holders = [part.start(HOLD, str(HELD_BYTES)) for _ in range(HOLDERS)]
    for holder in holders:
        expect(holder, "held")
    before, _ = map(int, part.run(LOOK))
    for holder in holders:
        holder.send_signal(signal.SIGKILL)
    for holder in holders:
        holder.wait()

    free, total = map(int, part.run(LOOK))

    assert before == GIB - HOLDERS * HELD_BYTES
    assert (free, total) == (GIB, GIB)
