"""The compute share under a slice, against the simulated device's own books (simulated figures)."""

import time

import pytest

from libvgpu.sim import Machine
from support import IS_LONG
from support.shim.slices import Slice, SliceOf
from support.waiting import wait_until

GIB = 1 << 30
MS = 1_000_000
RUN_SECONDS = 3.0 if IS_LONG else 1.5

SPIN = """
import sys
from support.shim.cuda_client import *
open_context()
spinner = Spinner(int(sys.argv[1]))
print(spinner.share_percent(float(sys.argv[2]), wait_each=sys.argv[3] == "sync"))
"""

pytestmark = pytest.mark.virtual


def test_the_share_is_the_cap(machine: Machine, slice_of: SliceOf) -> None:
    part = slice_of(machine, memory_bytes=GIB, core_percent=50)

    (share,) = map(float, part.run(SPIN, str(2 * MS), str(RUN_SECONDS), "queued"))

    assert share == pytest.approx(50, abs=0.5)
    # the device agrees, and what the shim tells the host agrees with the device
    assert machine.books()[0].busy_ns / 1e9 == pytest.approx(RUN_SECONDS * 0.5, rel=0.1)


def test_uncapped_work_is_not_held(part: Slice) -> None:
    (share,) = map(float, part.run(SPIN, str(2 * MS), "2", "queued"))

    assert share > 97


def test_what_ran_is_told_to_the_host(machine: Machine, slice_of: SliceOf) -> None:
    part = slice_of(machine, memory_bytes=GIB, core_percent=50)
    process = part.start(
        SPIN + "\nimport sys; sys.stdout.flush(); sys.stdin.readline()", str(2 * MS), "2", "queued"
    )
    assert process.stdout is not None and process.stdout.readline()

    (seen,) = part.usage().processes
    books = machine.books()[0]

    assert seen.devices[0].launches == books.clients[0].launches
    assert seen.devices[0].gpu_time_ns == pytest.approx(books.busy_ns, rel=0.02)
    assert seen.devices[0].held_ns > 0


@pytest.mark.parametrize(
    ("before", "after", "settle_seconds"),
    [
        (80, 20, 0.05),
        (20, 80, 0.05),
        (
            100,
            30,
            1.5,
        ),  # a client that was not capped has a full launch queue, which runs out first
    ],
)
def test_a_changed_share_holds_in_a_running_process(
    machine: Machine, slice_of: SliceOf, before: int, after: int, settle_seconds: float
) -> None:
    part = slice_of(machine, memory_bytes=GIB, core_percent=before)
    process = part.start(SPIN, str(MS), "3.5", "queued")
    wait_until(lambda: machine.books()[0].busy_ns >= 200 * MS or process.poll() is not None)
    assert process.poll() is None

    part.change(core_percent=after)
    time.sleep(settle_seconds)
    start, busy_before = time.monotonic(), machine.books()[0].busy_ns
    time.sleep(1.0)
    busy = machine.books()[0].busy_ns - busy_before
    elapsed_ns = (time.monotonic() - start) * 1e9

    assert 100 * busy / elapsed_ns == pytest.approx(after, abs=0.5)


def test_two_processes_of_one_container_share_one_cap(machine: Machine, slice_of: SliceOf) -> None:
    part = slice_of(machine, memory_bytes=GIB, core_percent=40)
    processes = [part.start(SPIN, str(500_000), str(RUN_SECONDS), "queued") for _ in range(2)]

    shares = [float(p.communicate(timeout=60)[0]) for p in processes]

    assert sum(shares) == pytest.approx(40, abs=0.5)
