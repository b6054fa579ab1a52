"""What every measurement on the simulated GPU leans on: its own cost, and a timeline that is right
on a busy host. The figures are those of the project's issue on the simulator."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from libvgpu.artifacts import SIM_LIBRARY_DIR
from libvgpu.sim import DeviceBooks, Machine
from support import IS_LONG, Compile
from support.ended import printed
from support.lines import expect
from support.sim.programs import busy, shares, start
from support.waiting import PATIENCE_S

pytestmark = pytest.mark.timing

MIB = 1 << 20
LAUNCH_LIMIT_NS = 1500
PAIR_LIMIT_NS = 3000
LATE_LIMIT_NS = 60_000
FULL_QUEUE_SECONDS = 10 if IS_LONG else 2.5
PROCESSES = 16


@contextmanager
def programs(machine: Machine, *codes: str) -> Iterator[list[int]]:
    """Starts programs that say "ready"; gives their process identifiers."""
    running = [start(machine, code) for code in codes]
    try:
        for each in running:
            expect(each)
        yield [each.pid for each in running]
    finally:
        for each in running:
            each.kill()
            each.wait(PATIENCE_S)


def window(machine: Machine, seconds: float) -> tuple[DeviceBooks, DeviceBooks]:
    first = machine.books()[0]
    time.sleep(seconds)
    return first, machine.books()[0]


def launches(books: DeviceBooks, pid: int) -> int:
    return next(client.launches for client in books.clients if client.pid == pid)


@pytest.mark.parametrize("bytes_each", [MIB, 256 * MIB])
def test_driver_calls_cost_little(
    machine: Machine, compile_program: Compile, bytes_each: int
) -> None:
    program = compile_program(
        "../../benchmarks/native/sim_client.c", flags=(f"-L{SIM_LIBRARY_DIR}", "-l:libcuda.so.1")
    )
    for _ in range(70):  # a machine on which many processes were is not slower
        subprocess.run([program, "0"], env=machine.environment(), check=True)

    said = printed(program, str(bytes_each), env=machine.environment())
    cost_ns = {word: float(ns) for word, ns in (line.split() for line in said.splitlines())}

    assert cost_ns["launch"] <= LAUNCH_LIMIT_NS
    assert cost_ns["alloc"] <= PAIR_LIMIT_NS
    assert cost_ns["async"] <= PAIR_LIMIT_NS
    assert 0 <= cost_ns["late"] <= LATE_LIMIT_NS


def test_a_full_queue_keeps_the_device_busy_on_a_busy_host(machine: Machine) -> None:
    hogs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    try:
        with programs(machine, busy(500_000)) as (pid,):
            time.sleep(1)
            first, last = window(machine, FULL_QUEUE_SECONDS)
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()
    completed_ns = (launches(last, pid) - launches(first, pid)) * 500_000
    wall_ns = last.clock_ns - first.clock_ns

    assert completed_ns >= 0.99 * wall_ns
    assert completed_ns <= wall_ns + 500_000  # one kernel may have begun before the window


def test_sixteen_processes_on_few_cores_get_a_sixteenth_each(machine: Machine) -> None:
    parts = shares(machine, *[busy(1_000_000)] * PROCESSES)

    assert parts[-1] == pytest.approx(1 / 1.01, abs=0.005)  # 20 us of 2020 go to the switch
    for part in parts[:-1]:
        assert part == pytest.approx(1 / 1.01 / PROCESSES, abs=0.005)
