"""Launch-bound programs under a cap that does not bind: charged by price, measured now and then."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from libvgpu.sim import Machine
from support import Compile
from support.shim.kinds import KindsLoop, Told, build_loop, costly_machine
from support.shim.slices import Slice, SliceOf

Loop = Callable[..., KindsLoop]
GIB = 1 << 30
KERNEL_NS = 5000
PERIOD_NS = 15_000
LONGER_NS = 100_000
CAP_PERCENT = 90
SETTLE_SECONDS = 0.3
RECORD_NS = 20_000  # what recording an event costs where calls tell of it
SLOW_NS = 20_000

pytestmark = pytest.mark.virtual


@pytest.fixture
def loop(compile_program: Compile) -> Iterator[Loop]:
    """Returns ``loop(part, kinds, …)``: a program that runs under a slice."""
    program, made = build_loop(compile_program), []

    def start(
        part: Slice, kinds: int, kernel_ns: int = KERNEL_NS, period_ns: int = PERIOD_NS
    ) -> KindsLoop:
        made.append(KindsLoop(program, part.environment(), kinds, kernel_ns, period_ns, SLOW_NS))
        return made[-1]

    yield start
    for each in made:
        each.kill()


def busy_ns(machine: Machine) -> int:
    return machine.books()[0].busy_ns


def booked_ns(part: Slice) -> int:
    return part.usage().devices[0].gpu_time_ns


def booked_part(machine: Machine, part: Slice, seconds: float) -> float:
    """Returns GPU time that the shim books ÷ what the device itself counts, in the next seconds."""
    begin = busy_ns(machine), booked_ns(part)
    time.sleep(seconds)
    end = busy_ns(machine), booked_ns(part)
    return (end[1] - begin[1]) / (end[0] - begin[0])


def done_in(program: KindsLoop, seconds: float) -> Told:
    before = program.ask()
    time.sleep(seconds)
    return program.ask() - before


@pytest.mark.parametrize("kinds", [1, 64])
def test_few_launches_are_measured(
    tmp_path: Path, slice_of: SliceOf, loop: Loop, kinds: int
) -> None:
    """A launch is slow where an event was recorded with it, and hardly anywhere else."""
    machine = costly_machine(tmp_path, cuEventRecord=RECORD_NS)
    part = slice_of(machine, memory_bytes=GIB, core_percent=CAP_PERCENT)
    program = loop(part, kinds)
    time.sleep(2 * SETTLE_SECONDS)

    done = done_in(program, 0.7)

    assert done.launches > 10_000
    assert 0 < done.slow < done.launches / 50


@pytest.mark.parametrize(("kernel_ns", "off_by"), [(KERNEL_NS, 0.07), (LONGER_NS, 0.03)])
def test_what_is_booked_is_what_the_gpu_did(
    tmp_path: Path, slice_of: SliceOf, loop: Loop, kernel_ns: int, off_by: float
) -> None:
    """A third of a microsecond between two events around a short kernel is no one's."""
    machine = costly_machine(tmp_path)
    part = slice_of(machine, memory_bytes=GIB, core_percent=CAP_PERCENT)
    loop(part, 8, kernel_ns, 3 * kernel_ns)
    time.sleep(SETTLE_SECONDS)

    assert booked_part(machine, part, 1) == pytest.approx(1, abs=off_by)


def test_a_kind_that_lasts_twice_as_long_is_noticed(
    tmp_path: Path, slice_of: SliceOf, loop: Loop
) -> None:
    machine = costly_machine(tmp_path)
    part = slice_of(machine, memory_bytes=GIB, core_percent=CAP_PERCENT)
    program = loop(part, 4, LONGER_NS, 4 * LONGER_NS)
    time.sleep(SETTLE_SECONDS)

    program.ask(f"kind 1 {2 * LONGER_NS}")
    time.sleep(1)

    assert booked_part(machine, part, 0.7) == pytest.approx(1, abs=0.05)


def test_kinds_that_get_longer_are_held_to_the_cap(
    tmp_path: Path, slice_of: SliceOf, loop: Loop
) -> None:
    """It was far below its cap by the prices of old; by the new ones it is far above."""
    machine = costly_machine(tmp_path)
    part = slice_of(machine, memory_bytes=GIB, core_percent=40)
    program = loop(part, 4, KERNEL_NS // 2)
    time.sleep(SETTLE_SECONDS)

    for kind in range(4):
        program.ask(f"kind {kind} {4 * KERNEL_NS}")
    time.sleep(SETTLE_SECONDS)
    begin, begin_ns = busy_ns(machine), time.monotonic_ns()
    time.sleep(0.7)
    share = (busy_ns(machine) - begin) / (time.monotonic_ns() - begin_ns)

    assert share == pytest.approx(0.40, abs=0.02)


def test_a_cap_that_is_lowered_holds_within_50_ms(
    tmp_path: Path, slice_of: SliceOf, loop: Loop
) -> None:
    """A budget may be out, and it was granted under the cap of before."""
    machine = costly_machine(tmp_path)
    part = slice_of(machine, memory_bytes=GIB, core_percent=CAP_PERCENT)
    loop(part, 8)
    time.sleep(SETTLE_SECONDS)

    for percent in (3, CAP_PERCENT, 3):
        part.change(core_percent=percent)
        time.sleep(0.05)
        begin, begin_ns = busy_ns(machine), time.monotonic_ns()
        time.sleep(0.2)
        share = 100 * (busy_ns(machine) - begin) / (time.monotonic_ns() - begin_ns)
        if percent == CAP_PERCENT:
            assert share > 10  # 33 on a host that is never busy
        else:
            assert share == pytest.approx(percent, abs=2)
