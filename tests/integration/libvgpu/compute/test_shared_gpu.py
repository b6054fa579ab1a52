"""Launch-bound tenants of one simulated GPU: no turns while it is enough, turns once it is not."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from libvgpu.arbitration import Arbiter
from libvgpu.limits import ComputeMode, ContainerLimits, DeviceLimit, Family
from libvgpu.region import create
from libvgpu.sim import Machine
from support import Compile
from support.shim.kinds import KindsLoop, build_loop, costly_machine
from support.shim.slices import Slice

GIB = 1 << 30
KINDS, KERNEL_NS, PERIOD_NS = 8, 5000, 30_000
SATURATING_NS = 200_000
NEVER_SLOW_NS = 1 << 60
SETTLE_SECONDS = 0.5
WINDOW_SECONDS = 0.7

pytestmark = pytest.mark.virtual


class Pair:
    """Two loops on one machine, under an arbiter or bare."""

    def __init__(self, folder: Path, program: Path) -> None:
        self.folder, self.program = folder, program
        self.machine: Machine = costly_machine(folder)
        self.arbiter = Arbiter()
        self.parts: list[Slice] = []
        self.loops: list[KindsLoop] = []

    def start(self, percents: tuple[int, int], *, bare: bool = False) -> None:
        for percent in percents:
            directory = self.folder / f"tenant-{len(self.parts)}"
            limit = DeviceLimit(
                self.machine.devices[0].uuid,
                GIB,
                core_percent=percent,
                compute_mode=ComputeMode.ELASTIC,
                weight=percent,
            )
            create(directory, ContainerLimits(directory.name, Family.VGPU, (limit,)))
            part = Slice(self.machine, directory)
            if not bare:
                self.arbiter.add(directory, 0)
            self.parts.append(part)
            env = part.environment(shim=not bare)
            arguments = (KINDS, KERNEL_NS, PERIOD_NS, NEVER_SLOW_NS)
            self.loops.append(KindsLoop(self.program, env, *arguments))

    def launches(self) -> list[int]:
        """Returns how many each makes in the next `WINDOW_SECONDS`."""
        before = [loop.ask() for loop in self.loops]
        time.sleep(WINDOW_SECONDS)
        after = [loop.ask() for loop in self.loops]
        return [(a - b).launches for a, b in zip(after, before, strict=True)]

    def busy(self) -> list[float]:
        """Returns each one's percentage of the GPU in the next `WINDOW_SECONDS`."""
        first = self.machine.books()[0]
        time.sleep(WINDOW_SECONDS)
        last = self.machine.books()[0]
        before = {client.pid: client.busy_ns for client in first.clients}
        after = {client.pid: client.busy_ns for client in last.clients}
        passed_ns = last.clock_ns - first.clock_ns
        return [100 * (after[p.pid] - before[p.pid]) / passed_ns for p in self.loops]

    def end(self) -> None:
        for loop in self.loops:
            loop.kill()
        self.loops.clear()

    def windows(self) -> int:
        return sum(part.usage().devices[0].windows for part in self.parts)


@pytest.fixture
def pair(tmp_path: Path, compile_program: Compile) -> Iterator[Pair]:
    made = Pair(tmp_path, build_loop(compile_program))
    yield made
    made.end()
    made.arbiter.stop()


def test_launch_bound_tenants_keep_what_they_have_without_us(pair: Pair) -> None:
    pair.start((50, 50), bare=True)
    bare = pair.launches()
    pair.end()
    pair.start((50, 50))
    time.sleep(SETTLE_SECONDS)
    windows = pair.windows()

    held = pair.launches()

    assert pair.windows() == windows > 0  # turns were taken, and are over
    assert min(h / b for h, b in zip(held, bare, strict=True)) >= 0.9


@pytest.mark.parametrize(
    "blocks",
    [
        pytest.param(
            1,
            marks=pytest.mark.xfail(reason="a price rises slowly while others run, too"),
        ),
        64,
    ],
    ids=["same kinds", "other kinds"],
)
def test_turns_begin_once_they_want_all_and_each_gets_his_share(pair: Pair, blocks: int) -> None:
    pair.start((30, 70))
    time.sleep(SETTLE_SECONDS)
    windows = pair.windows()

    for loop in pair.loops:
        for kind in range(KINDS):
            loop.ask(f"kind {kind} {SATURATING_NS}")
        loop.ask(f"blocks {blocks}")
        loop.ask("period 0")
    time.sleep(SETTLE_SECONDS)
    shares = pair.busy()

    assert pair.windows() > windows + 30
    assert 100 * shares[0] / sum(shares) == pytest.approx(30, abs=2.5)
    assert sum(shares) > 85
