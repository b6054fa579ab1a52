"""Processes of one container wait for its share in the order in which they came."""

import os
import signal
import subprocess
import time

import pytest

from libvgpu.sim import Machine
from support import IS_LONG
from support.lines import expect, next_line
from support.shim.served import SERVE
from support.shim.slices import Slice, SliceOf
from support.sim.programs import PRELUDE, busy

MS = 1_000_000
SYNC = "check(cuda.cuCtxSynchronize())"
GIB = 1 << 30
CAP_PERCENT = 30
SETTLE_SECONDS = 0.5
WINDOW_SECONDS = 1.5 if IS_LONG else 1.0
FROM_33_MS = 10  # the first bucket of delay.h for waits of 33 ms and more

pytestmark = pytest.mark.virtual


def begin(part: Slice, kernel_ns: int) -> subprocess.Popen[str]:
    process = part.start(PRELUDE + busy(kernel_ns, SYNC))
    expect(process)
    return process


def test_processes_that_wait_are_served_in_turn(machine: Machine, slice_of: SliceOf) -> None:
    """Each of four waits for three others, 5 ms each; by chance one in ten would wait 33 ms."""
    part = slice_of(machine, memory_bytes=GIB, core_percent=20)
    for _ in range(4):
        begin(part, MS)
    time.sleep(SETTLE_SECONDS)

    before = part.usage().devices[0].delay_counts
    time.sleep(2 * WINDOW_SECONDS)
    after = part.usage().devices[0].delay_counts

    held = [late - early for early, late in zip(before, after, strict=True)]
    assert sum(held) > 130 * 2 * WINDOW_SECONDS
    assert sum(held[FROM_33_MS:]) < 0.03 * sum(held), held


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_one_that_ends_while_it_waits_holds_nobody_up(
    machine: Machine, slice_of: SliceOf, ending: signal.Signals
) -> None:
    part = slice_of(machine, memory_bytes=GIB, core_percent=CAP_PERCENT)
    staying, going = begin(part, MS), begin(part, MS)
    time.sleep(SETTLE_SECONDS)

    os.kill(going.pid, ending)
    time.sleep(0.1)
    first = machine.books()[0]
    time.sleep(WINDOW_SECONDS)
    last = machine.books()[0]

    share = 100 * (last.busy_ns - first.busy_ns) / (last.clock_ns - first.clock_ns)
    assert share == pytest.approx(CAP_PERCENT, abs=3)
    going.kill()
    staying.kill()


#: Its stream waits for a word that the other process sets behind a kernel, and more is queued.
WAITS_FOR_THE_OTHER = """
open_context()
word = check(cuda.cuMemAlloc(1 << 21))
check(cuda.cuMemsetD8(word, 0, 4))
spinner = Spinner(1_000_000)
for _ in range(3): spinner.launch()
spinner.wait()
print(hexadecimal(check(cuda.cuIpcGetMemHandle(word))), flush=True)
sys.stdin.readline()
check(cuda.cuStreamWaitValue32(spinner.stream, word, 1, 1))
began = time.monotonic()
for _ in range(10): spinner.launch()
spinner.wait()
print(time.monotonic() - began, flush=True)
sys.stdin.readline()
"""
SETS_THE_WORD = """
open_context()
handle = opaque(cuda.CUipcMemHandle, sys.argv[1])
word = check(cuda.cuIpcOpenMemHandle(handle, 1))
spinner = Spinner(1_000_000)
for _ in range(3): spinner.launch()
spinner.wait()
print("ready", flush=True)
sys.stdin.readline()
time.sleep(0.1)
for _ in range(3): spinner.launch()
check(cuda.cuStreamWriteValue32(spinner.stream, word, 1, 0))
spinner.wait()
sys.stdin.readline()
"""


def test_work_that_waits_for_another_process_does_not_keep_that_one_from_launching(
    machine: Machine, slice_of: SliceOf
) -> None:
    part = slice_of(machine, memory_bytes=GIB, core_percent=CAP_PERCENT)
    waiting = part.start(PRELUDE + SERVE + WAITS_FOR_THE_OTHER)
    assert waiting.stdin is not None
    setting = part.start(PRELUDE + SERVE + SETS_THE_WORD, next_line(waiting))
    assert setting.stdin is not None
    expect(setting)

    for stdin in (waiting.stdin, setting.stdin):
        stdin.write("go\n")
        stdin.flush()

    assert float(next_line(waiting)) < 3
