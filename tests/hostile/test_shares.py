"""What a tenant writes into its `usage` or its ring takes no share from a neighbour (simulated).

In a time of its own, so the shares are right to the microsecond. The attacker launches all the time
meanwhile, and so do its neighbours, or half of it. The watch sees the processes' time by NVML.
"""

import json
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.hostile.attacks import RING_ROWS, books, rings
from deviceplugin.model.allocations import Allocation
from deviceplugin.watch.comparison import ComparedAllocation
from deviceplugin.watch.gpu_time import LOOK_CLOSELY_S, TimeSample
from deviceplugin.watch.time_watch import TimeWatch
from libvgpu.arbitration import ArbiterCounters
from libvgpu.limits import ComputeMode, Family
from libvgpu.region import read_limits
from libvgpu.sim import Machine
from support.lines import expect
from support.shim.crowd import MS, Crowd
from support.shim.slices import Slice

pytestmark = [pytest.mark.hostile, pytest.mark.virtual]

SETTLE_SECONDS, WINDOW_SECONDS = 1.5, 3.0
NEIGHBOURS, ATTACKER = [30, 50], 20
POINTS = 1.0
EVERY_S = 0.001
SPARSE_S = 1.05
SAMPLER = """
import dataclasses, json, sys
from deviceplugin.watch.nvml_processes import read_times
print("ready", flush=True)
for line in sys.stdin:
    found = read_times({sys.argv[1]: int(line)})[sys.argv[1]]
    print(json.dumps([dataclasses.astuple(each) for each in found]), flush=True)
"""
_VIRTUAL_TIME, _BUSY, _DEMAND, _LAUNCHED = (books.DEVICE_AT + at for at in (64, 72, 80, 104))


def fields(*written: tuple[int, Callable[[], int]]) -> Callable[[], Iterator[None]]:
    """Returns an attack that writes some numbers of the book again and again."""

    def steps() -> Iterator[None]:
        while True:
            for at, value in written:
                books.write(struct.pack("<q", value()), at)
            yield

    return steps


@dataclass(frozen=True, slots=True)
class Case:
    """An attack, how all three share the GPU, and what neighbours do after each launch.

    Attributes:
        settle_seconds: within them a forger is caught; then it has nothing for half a minute.
    """

    name: str
    steps: Callable[[], Iterator[None]]
    mode: ComputeMode = ComputeMode.STRICT
    after: str = "pass"
    settle_seconds: float = 4


OWES_NOTHING = fields((_VIRTUAL_TIME, lambda: -1), (_BUSY, int))
IS_A_LITTLE_BEHIND = fields(
    (_VIRTUAL_TIME, lambda: time.monotonic_ns() - 4 * MS),
    (_BUSY, int),
    (_DEMAND, time.monotonic_ns),
)
IS_ALWAYS_FIRST = fields((_VIRTUAL_TIME, lambda: -1), (_BUSY, int), (_LAUNCHED, int))
HALF_IDLE = "time.sleep(0.002)"
CASES = [
    Case("owes nothing", OWES_NOTHING),
    Case("owes nothing, half idle", OWES_NOTHING, after=HALF_IDLE),
]
RING_CASES = [Case(row.name, row.steps, settle_seconds=1) for row in RING_ROWS]
#: These take 4 or 5 points only, and are caught the later.
_SLOW_SECONDS = 12
LONG_CASES = [
    Case("owes nothing, elastic", OWES_NOTHING, ComputeMode.ELASTIC, settle_seconds=_SLOW_SECONDS),
    Case("is a little behind", IS_A_LITTLE_BEHIND, settle_seconds=_SLOW_SECONDS),
    Case(
        "is a little behind, half idle",
        IS_A_LITTLE_BEHIND,
        ComputeMode.STRICT,
        HALF_IDLE,
        _SLOW_SECONDS,
    ),
    Case("each launch is its window's first", IS_ALWAYS_FIRST),
    Case("a forged demand", books.forged_demand, settle_seconds=_SLOW_SECONDS),
    Case("all bits", books.with_all_bits, settle_seconds=_SLOW_SECONDS),
]
ALL = [*CASES, *RING_CASES, *(pytest.param(case, marks=pytest.mark.long) for case in LONG_CASES)]


class OneArbiter:
    """The arbiter of the only GPU."""

    def __init__(self, crowd: Crowd) -> None:
        self.crowd, self.uuid = crowd, crowd.machine.devices[0].uuid

    def counters(self) -> Mapping[str, ArbiterCounters]:
        return {self.uuid: self.crowd.arbiter.counters()}

    def withhold(self, uuid: str, directory: Path, seconds: float) -> bool:
        return self.crowd.arbiter.withhold(directory, seconds)


class Watched:
    """A crowd, and the watch over its GPU's time."""

    def __init__(self, machine: Machine, path: Path) -> None:
        self.crowd = Crowd(machine, path)
        self.uuid = machine.devices[0].uuid
        self.sampler = Slice(machine, path).start(SAMPLER, self.uuid, shim=False)
        expect(self.sampler)
        self.watch = TimeWatch(OneArbiter(self.crowd), self.read, time.monotonic)
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def read(self, since_us: Mapping[str, int]) -> dict[str, list[TimeSample]]:
        assert self.sampler.stdin and self.sampler.stdout
        print(since_us[self.uuid], file=self.sampler.stdin, flush=True)
        found = json.loads(self.sampler.stdout.readline())
        return {self.uuid: [TimeSample(*each) for each in found]}

    def run(self) -> None:
        watched, holders = {}, {}
        for part, process in zip(self.crowd.parts, self.crowd.processes, strict=True):
            name, limits = part.directory.name, read_limits(part.directory).limits
            allocation = Allocation(name, Family.VGPU, self.uuid, 1)
            watched[name] = ComparedAllocation(allocation, part.directory, limits, limits)
            holders[process.pid] = name
        while not self.over.is_set():
            self.watch.follow(watched, {self.uuid: holders})
            self.watch.look()
            time.sleep(LOOK_CLOSELY_S if self.watch.is_suspicious else SPARSE_S)

    def close(self) -> None:
        self.over.set()
        if self.thread.is_alive():
            self.thread.join()
        self.sampler.kill()
        self.sampler.wait()
        self.crowd.close()


@pytest.fixture
def watched(machine: Machine, tmp_path: Path) -> Iterator[Watched]:
    made = Watched(machine, tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)
def test_neighbours_keep_their_shares(
    watched: Watched, monkeypatch: pytest.MonkeyPatch, case: Case
) -> None:
    crowd = watched.crowd
    for part in NEIGHBOURS:
        crowd.join(part, case.mode, MS, case.after)
    own = crowd.join(ATTACKER, case.mode, MS)
    watched.thread.start()
    time.sleep(SETTLE_SECONDS)
    in_peace = crowd.shares(WINDOW_SECONDS)
    assert not watched.watch.forged
    monkeypatch.setattr(books, "USAGE", str(own.directory / "usage"))
    for room in (books, rings):
        monkeypatch.setattr(room, "RING", str(own.directory / "ring"))
    is_over = threading.Event()

    def go_on() -> None:
        for _ in case.steps():
            if is_over.is_set():
                return
            time.sleep(EVERY_S)

    attacker = threading.Thread(target=go_on)
    attacker.start()
    time.sleep(case.settle_seconds)
    attacked = crowd.shares(WINDOW_SECONDS)
    is_over.set()
    attacker.join()

    print(case.name, in_peace, attacked, watched.watch.forged)
    for before, now in zip(in_peace[:-1], attacked[:-1], strict=True):
        assert now >= before - POINTS
    assert attacked[-1] <= in_peace[-1] + POINTS
    assert bool(watched.watch.forged) == (case not in RING_CASES)
