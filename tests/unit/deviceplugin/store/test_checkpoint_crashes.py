"""The checkpoint after a crash at any point: the state before or after a change, never another."""

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from deviceplugin.model.allocations import Allocation, Owner
from deviceplugin.store import checkpoint as module
from deviceplugin.store.checkpoint import Checkpoint, Loaded
from deviceplugin.store.disk import Disk
from libvgpu.errors import VgpuError
from libvgpu.limits import Family
from support import IS_LONG
from support.lines import next_line
from support.node.disk import Files, SimDisk, Stopped
from support.waiting import PATIENCE_S

STATE_DIR = Path("/state")
NAME = STATE_DIR / "checkpoint.json"
State = frozenset[Allocation]
VERSION_1 = (
    b'{"version":1,"allocations":[{"allocation_id":"old","family":"MPS","uuid":"GPU-0",'
    b'"memory_unit_bytes":1073741824,"core":["GPU-0::c9"],"memory":[],"implicit_units":[],'
    b'"settled":true,"refused":false,"started":false,"changed_at":1.5,"missing_since":0.0,'
    b'"owner":{"namespace":"a","pod":"b","container":"c"},"shim_build":"ab12"}]}'
)
OLD = Allocation(
    "old", Family.MPS, "GPU-0", 1 << 30, core=("GPU-0::c9",), settled=True, changed_at=1.5,
    owner=Owner("a", "b", "c"), shim_build="ab12",
)  # fmt: skip


def allocation(name: str, units: int = 2, **more: object) -> Allocation:
    core = tuple(f"GPU-1::c{n}" for n in range(units))
    return Allocation(name, Family.VGPU, "GPU-1", 1 << 30, core=core, **more)  # type: ignore[arg-type]


A, B, C, D = (allocation(name, units) for name, units in (("a", 1), ("b", 3), ("c", 2), ("d", 1)))
SETTLED = allocation("b", 3, settled=True)


@dataclass(frozen=True)
class Step:
    """One call of the checkpoint, and what it does to the state."""

    act: Callable[[Checkpoint], object]
    put: tuple[Allocation, ...] = ()
    drop: tuple[str, ...] = ()

    def after(self, state: State) -> State:
        live = {h.allocation_id: h for h in (*state, *self.put)}
        return frozenset(h for name, h in live.items() if name not in self.drop)


STEPS = [
    Step(lambda c: c.record([A]), (A,)),
    Step(lambda c: c.record([B, C]), (B, C)),
    Step(lambda c: c.record([SETTLED], ["a"]), (SETTLED,), ("a",)),
    Step(lambda c: c.compact()),
    Step(lambda c: c.record([D]), (D,)),
    Step(lambda c: c.record([SETTLED, A], ["c", "d", "old"]), (SETTLED, A), ("c", "d", "old")),
    Step(lambda c: c.record(drop=["a", "b"]), (), ("a", "b")),
    Step(lambda c: c.compact()),
    Step(lambda c: c.record([A]), (A,)),
]


@pytest.fixture(autouse=True)
def always_due(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "COMPACT_AT_TIMES", 0)
    monkeypatch.setattr(module, "COMPACT_SLACK_BYTES", 0)


class DiskOfProcess(Disk):
    """The real disk, as one process has it."""

    def __init__(self) -> None:
        self.open: set[int] = set()

    def create(self, path: Path) -> int:
        descriptor = super().create(path)
        self.open.add(descriptor)
        return descriptor

    def close(self, descriptor: int) -> None:
        self.open.discard(descriptor)
        super().close(descriptor)

    def end(self) -> None:
        for descriptor in [*self.open]:
            self.close(descriptor)


def load(state_dir: Path) -> Loaded:
    """Returns what a process that ends thereupon finds."""
    disk = DiskOfProcess()
    try:
        return Checkpoint(state_dir, disk).load()
    finally:
        disk.end()


def run(disk: SimDisk, start: State) -> tuple[State, State]:
    """Returns the state that was acknowledged and the one that may have been under way."""
    done = under_way = start
    checkpoint = Checkpoint(STATE_DIR, disk)
    try:
        checkpoint.load()
        for step in STEPS:
            under_way = step.after(done)
            step.act(checkpoint)
            done = under_way
    except Stopped:
        pass
    return done, under_way


def loaded(files: Files) -> State:
    found = Checkpoint(STATE_DIR, SimDisk(files)).load()
    if NAME in files:
        assert found.trusted, found.problem
    return frozenset(found.allocations)


def places(files: Files, start: State) -> Iterator[tuple[int, int]]:
    """Yields every call of a whole run and, for writes, lengths after which it is cut off."""
    whole = SimDisk(files)
    assert run(whole, start)[0] == {A}
    for call in range(whole.calls):
        length = whole.write_lengths.get(call, 0)
        parts = {0, *range(1, length, 1 if IS_LONG else 11), max(0, length - 1), length}
        yield from ((call, part) for part in sorted(parts))


@pytest.mark.parametrize("files", [{}, {NAME: VERSION_1}], ids=["nothing", "version 1"])
def test_a_stop_at_any_write_leaves_the_state_before_or_after_it(files: Files) -> None:
    start: State = frozenset({OLD} if files else ())
    seen = 0
    for call, part in places(files, start):
        disk = SimDisk(files)
        disk.stop_at, disk.stop_within = call, part
        allowed = run(disk, start)
        for left in (disk.killed(), *disk.power_cut()):
            seen += 1
            assert loaded(left) in allowed, (call, part, left)
    assert seen > 1000


@pytest.mark.parametrize("errors", [1, 2, 3, 4])
def test_errors_anywhere_keep_the_old_state_and_heal(errors: int) -> None:
    whole = SimDisk()
    run(whole, frozenset())
    for first in range(whole.calls):
        disk = SimDisk()
        disk.fail_at = set(range(first, first + errors))
        checkpoint = Checkpoint(STATE_DIR, disk)
        state: State = frozenset()
        perhaps: set[State] = set()  # what a change that failed may have left
        for step in STEPS:
            try:
                step.act(checkpoint)
            except VgpuError:
                perhaps.add(step.after(state))
            else:
                if step.after(state) != state:
                    perhaps.clear()
                state = step.after(state)
            assert loaded(disk.killed()) in {state, *perhaps}, first
        disk.fail_at = set()
        checkpoint.record([C], ["a", "b", "d", "old"])
        assert len(disk.open) == 1, "a descriptor is left open"
        for left in (disk.killed(), *disk.power_cut()):
            assert loaded(left) == {C}


def test_a_change_that_failed_is_not_there_and_the_next_one_is() -> None:
    for calls_later in range(2):  # the write, its sync
        disk = SimDisk()
        checkpoint = Checkpoint(STATE_DIR, disk)
        checkpoint.record([A])
        disk.fail_at = {disk.calls + calls_later}

        with pytest.raises(VgpuError, match=r"checkpoint\.json cannot be written: Input/output"):
            checkpoint.record([B])

        assert loaded(disk.killed()) == {A}
        checkpoint.record([C])
        assert loaded(disk.killed()) == {A, C}


def test_what_is_stored_already_costs_no_write() -> None:
    disk = SimDisk()
    checkpoint = Checkpoint(STATE_DIR, disk)
    checkpoint.record([A, B])
    calls = disk.calls

    checkpoint.record([allocation("a", 1)])
    checkpoint.record([B, A])
    checkpoint.record(drop=["nobody"])

    assert disk.calls == calls
    checkpoint.record([C, D])
    assert disk.calls == calls + 2, "two allocations, one write and one sync"


def test_a_torn_end_is_dropped_in_words_and_damage_is_put_aside(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    checkpoint.record([A])
    short = checkpoint.path.stat().st_size
    checkpoint.record([B])
    content = checkpoint.path.read_bytes()
    for length in range(len(content)):
        checkpoint.path.write_bytes(content[:length])

        found = load(tmp_path)

        if length < short:
            assert not found.trusted
            assert "is damaged" in str(found.problem)
        else:
            assert found.allocations == (A,)
            assert found.trusted
            assert ("torn" in str(found.problem)) == (length > short)
            assert load(tmp_path).problem is None, "it was not written again"


def test_a_flipped_bit_is_never_believed(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    checkpoint.record([A])
    checkpoint.record([B])
    checkpoint.record([C])
    content = checkpoint.path.read_bytes()
    last = content[:-1].rindex(b"\n") + 1
    for place in range(len(content)):
        wrong = bytearray(content)
        wrong[place] ^= 1 << (place % 8)
        checkpoint.path.write_bytes(wrong)

        found = load(tmp_path)

        if place < last - 1:
            assert not found.trusted, place
        elif place == last - 1:  # the newline: two lines are one, which looks torn
            assert found.allocations == (A,)
        else:
            assert found.allocations in ((A, B), (A, B, C)), place


def test_a_file_that_never_ends_is_not_read_into_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_BYTES", 1000)
    (tmp_path / "checkpoint.json").write_bytes(b"x" * 2000)

    found = load(tmp_path)

    assert "more than the 1000 bytes" in str(found.problem)
    assert not found.trusted


WRITER = """
import sys
from pathlib import Path
from deviceplugin.store import checkpoint as module
from deviceplugin.model.allocations import Allocation
from libvgpu.limits import Family
module.COMPACT_SLACK_BYTES = 4000
module.COMPACT_AT_TIMES = 1
checkpoint = module.Checkpoint(Path(sys.argv[1]))
number = max((int(h.allocation_id) for h in checkpoint.load().allocations), default=0)
while True:
    number += 1
    core = tuple(f"GPU-0::c{n}" for n in range(number % 50))
    fresh = Allocation(str(number), Family.VGPU, "GPU-0", 1 << 30, core=core)
    checkpoint.record([fresh], [str(number - 5)])
    print(number, flush=True)
    if number % 20 == 0:
        checkpoint.compact()
"""


@pytest.mark.process
def test_a_killed_writer_loses_nothing_it_acknowledged(tmp_path: Path) -> None:
    order = random.Random(7)
    last = 0
    for _ in range(12):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path)],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ,
        )
        assert writer.stdout is not None
        for _ in range(order.randrange(1, 120)):
            last = int(next_line(writer))
        writer.send_signal(signal.SIGKILL)
        rest = writer.stdout.read().split()
        writer.wait(PATIENCE_S)
        last = int(rest[-1]) if rest else last

        found = load(tmp_path)

        assert found.trusted
        ids = [int(h.allocation_id) for h in found.allocations]
        newest = ids[-1]
        assert newest in (last, last + 1)
        assert ids == list(range(max(1, newest - 4), newest + 1))
        last = newest
    assert not [each for each in tmp_path.iterdir() if "damaged" in each.name]
    assert last > 100
