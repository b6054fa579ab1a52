"""An hour of honest work on a node, from a seed, and the watch of it, look by look.

Containers share two GPUs. Their processes come and go, are killed, allocate and free, at any moment
and also while the watch reads. All that may make a look say something else than what is so is in
here: a driver takes seconds to give back what an ended process had, NVML lists a process late or
still, or memory that two share for each of them, a ledger follows late, pids are used again, limits
change under what is held, and the agent starts again. Time is the model's, `/proc` is in memory.
"""

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from deviceplugin.model.agent_config import WatchPolicy
from deviceplugin.model.allocations import Allocation, Owner
from deviceplugin.store.slice_peaks import SlicePeaks
from deviceplugin.watch import comparison, process_attribution, procfs, watcher
from deviceplugin.watch.comparison import Charges, ComparedAllocation
from deviceplugin.watch.nvml_processes import GpuReading
from deviceplugin.watch.process_attribution import ProcessAttribution
from deviceplugin.watch.procfs import MountPoint
from deviceplugin.watch.watcher import ACTIVE_S, IDLE_S, MemoryWatch
from libvgpu.errors import RegionBusyError, RegionError
from libvgpu.ledger_view import Ledger, LedgerProcess
from libvgpu.limits import ContainerLimits, DeviceLimit, Family
from support.node.fake_proc import CONTAINER, DEVICE, mount_line

GIB, MIB = 1 << 30, 1 << 20
GPUS = ("GPU-0", "GPU-1")
ASKED_BYTES, CONTEXT_BYTES = 8 * GIB, 512 * MIB
#: What is late is so for less than the window of the watch.
LATE_S = 1.6
_TEARDOWN_S = 8.0
_PF_EXITING = 4


@dataclass
class Piece:
    """Memory from one moment to another; ``shown_s``: until when NVML shows it."""

    size: int
    from_s: float
    to_s: float = float("inf")
    shown_s: float = float("inf")


@dataclass
class Worker:
    """A process.

    Attributes:
        ended_s: from when on it runs no code, and its ledger is rid of it.
        gone_s: from when on there is no such process.
        listed_s: from when until when NVML lists it.
        known_s: from when on its ledger has it.
    """

    pid: int
    start_time_ticks: int
    known_s: float
    listed_s: tuple[float, float]
    ended_s: float = float("inf")
    gone_s: float = float("inf")
    pieces: list[Piece] = field(default_factory=list)

    def held(self) -> list[Piece]:
        return [each for each in self.pieces if each.to_s == float("inf")]


@dataclass
class Container:
    """One with a slice of one GPU; ``shared_bytes``: counted for each of its processes by NVML."""

    name: str
    uid: str
    gpu: str
    limit_bytes: int = ASKED_BYTES
    unaccounted_bytes: int = 0
    shared_bytes: int = 0
    is_busy: bool = True
    workers: list[Worker] = field(default_factory=list)

    def ledger_bytes(self, at_s: float) -> int:
        """Returns what its ledger says; it reserves before the driver takes, and frees after it."""
        known = [w for w in self.workers if w.known_s <= at_s < w.ended_s]
        held = sum(p.size for w in known for p in w.pieces if p.from_s <= at_s < p.to_s)
        return held + (self.shared_bytes if known else 0)

    def limits(self, memory_bytes: int, unaccounted_bytes: int = 0) -> ContainerLimits:
        limit = DeviceLimit(self.gpu, memory_bytes, context_bytes=CONTEXT_BYTES)
        limit = replace(limit, unaccounted_bytes=unaccounted_bytes)
        return ContainerLimits(self.name, Family.VGPU, (limit,))


class MixedLoad:
    """The node, which is what the watch asks."""

    def __init__(self, path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.chance = random.Random(seed)
        self.state, self.now_s, self.begun = path, 0.0, 0
        self.containers = [
            Container(f"c{n}", f"{n:08x}-0000-0000-0000-000000000000", GPUS[n % 2])
            for n in range(4)
        ]
        self._live: dict[int, tuple[Worker, Container]] = {}  # by pid, those that /proc shows
        monkeypatch.setattr(procfs, "_read", self._proc_file)
        monkeypatch.setattr(procfs, "_namespace", lambda link: 0)
        monkeypatch.setattr(comparison, "read_ledger", self._ledger)
        monkeypatch.setattr(comparison, "damage", lambda *_: "")
        monkeypatch.setattr(watcher, "has_own_pid_namespace", lambda: False)
        real = procfs.read_mounts
        here = [MountPoint(DEVICE, "/", str(path), False)]
        monkeypatch.setattr(
            process_attribution,
            "read_mounts",
            lambda pid, proc=procfs.PROC: here if pid == "self" else real(pid, proc),
        )
        self.restart()

    # ---- the node -----------------------------------------------------------------------------

    def restart(self) -> None:
        """Starts the agent again: it knows what it kept, and charges nobody."""
        for each in self.containers:
            each.unaccounted_bytes = 0
        self.watch = MemoryWatch(
            self,
            ProcessAttribution(
                self.state, lambda: {c.name: {c.uid} for c in self.containers}, self.state / "proc"
            ),
            WatchPolicy.TERMINATE,
            SlicePeaks(self.state),
            self.read,
            lambda: self.now_s,
        )
        self.watch._stop = self  # type: ignore[assignment]

    def wait(self, timeout_s: float) -> bool:
        """Waits as the watch's event does."""
        self.now_s += timeout_s
        return False

    def is_set(self) -> bool:
        return False

    def shared_gpus(self) -> Collection[str]:
        return GPUS

    def watched(self) -> Sequence[ComparedAllocation]:
        return [
            ComparedAllocation(
                Allocation(c.name, Family.VGPU, c.gpu, GIB, owner=Owner("ns", c.name, "c")),
                self.state / c.name,
                c.limits(ASKED_BYTES),
                c.limits(c.limit_bytes, c.unaccounted_bytes),
            )
            for c in self.containers
        ]

    def set_unaccounted(self, charges: Charges) -> None:
        for each in self.containers:
            each.unaccounted_bytes = charges.get(each.name, {}).get(each.gpu, 0)

    def note_sizes(self, found: object) -> None:
        """Learns nothing."""

    # ---- what the watch reads, each at its own moment -------------------------------------------

    def read(self, uuids: Sequence[str]) -> Mapping[str, GpuReading]:
        """Answers as NVML."""
        return {uuid: self._reading(uuid) for uuid in uuids}

    def _reading(self, uuid: str) -> GpuReading:
        self.now_s += self.chance.uniform(0.001, 0.004)
        listed: dict[int, int] = {}
        used = 0
        for container in self.containers:
            if container.gpu != uuid:
                continue
            for worker in container.workers:
                held = sum(p.size for p in worker.pieces if p.from_s <= self.now_s < p.shown_s)
                used += held
                first_s, last_s = worker.listed_s
                if held and first_s <= self.now_s < last_s:
                    listed[worker.pid] = max(
                        listed.get(worker.pid, 0), held + container.shared_bytes
                    )
            used += container.shared_bytes if container.workers else 0
        return GpuReading(listed, used)

    def _ledger(self, directory: Path) -> Ledger:
        self.now_s += self.chance.uniform(0, 0.003)
        if self.chance.random() < 0.002:
            raise self.chance.choice([RegionBusyError, RegionError])("for a moment")
        (container,) = (each for each in self.containers if each.name == directory.name)
        processes = frozenset(
            LedgerProcess(w.pid, 0, w.start_time_ticks)
            for w in container.workers
            if w.known_s <= self.now_s < w.ended_s
        )
        used = container.ledger_bytes(self.now_s)
        return Ledger((used,), processes, (0,), (0,), container.name)

    def _proc_file(self, path: Path) -> str | None:
        self.now_s += 1e-5
        found = self._live.get(int(path.parent.name)) if path.parent.name.isdecimal() else None
        if found is None or found[0].gone_s <= self.now_s:
            return None
        worker, container = found
        if path.name == "stat":
            flags = _PF_EXITING if worker.ended_s <= self.now_s else 0
            return f"1 (w) S 1 0 0 0 0 {flags} {'0 ' * 12}{worker.start_time_ticks} 0"
        return {
            "status": f"NSpid:\t{worker.pid}\n",
            "cgroup": f"0::/kubepods/pod{container.uid}/{CONTAINER}\n",
            "mountinfo": mount_line(f"/{container.name}/limits"),
        }[path.name]

    # ---- what happens -------------------------------------------------------------------------

    def live(self, seconds: float) -> None:
        """Lets so much time pass, with all its looks."""
        end_s = self.now_s + seconds
        is_active = False
        while self.now_s < end_s:
            if self.chance.random() < 1 / 120:
                self.now_s += self.chance.uniform(1, 30)  # the agent is away
                for each in self.containers:
                    self._edit(each)
                self.restart()
            pause_s = ACTIVE_S if is_active else IDLE_S
            for each in self.containers:
                self._happen(each, pause_s)
            self.now_s += pause_s
            is_active = self.watch.look()

    def _happen(self, container: Container, pause_s: float) -> None:
        """Does some of what a container does from this look on, and a little beyond the next."""
        container.workers = [w for w in container.workers if w.listed_s[1] > self.now_s]
        if self.chance.random() < 1 / 300:
            self._edit(container)
        if self.chance.random() < 1 / 30:
            container.is_busy = not container.is_busy
        if not container.is_busy:
            return
        moments = [self.chance.uniform(0, pause_s) for _ in range(self.chance.randrange(4))]
        if self.chance.random() < 0.3:
            moments.append(pause_s + self.chance.uniform(0, 0.04))  # while the watch reads
        for moment in sorted(moments):
            self._act(container, self.now_s + moment)

    def _edit(self, container: Container) -> None:
        """Changes what holds for a container; sharing begins before its processes do."""
        container.limit_bytes = self.chance.choice([4, 8, 12, 16]) * GIB
        if not container.workers:
            container.shared_bytes = self.chance.choice([0, GIB])

    def _act(self, container: Container, at_s: float) -> None:
        running = [w for w in container.workers if w.ended_s == float("inf")]
        what = self.chance.random()
        if not running or (what < 0.15 and len(running) < 4):
            self._begin(container, at_s)
            return
        worker = self.chance.choice(running)
        held = worker.held()
        if what < 0.3:
            self._end(worker, at_s)
        elif what < 0.6 and len(held) > 1:
            piece = self.chance.choice(held[1:])
            piece.to_s = piece.shown_s = at_s
        else:
            self._take(container, worker, self.chance.randrange(1, 4 * 1024) * MIB, at_s)

    def _begin(self, container: Container, at_s: float) -> None:
        free = [n for n in range(100, 130) if n not in self._live or self._live[n][0].gone_s < at_s]
        self.begun += 1
        known_s = at_s + (self.chance.uniform(0, LATE_S) if self.chance.random() < 0.02 else 0)
        listed_s = at_s + (self.chance.uniform(0, LATE_S) if self.chance.random() < 0.1 else 0)
        worker = Worker(self.chance.choice(free), self.begun, known_s, (listed_s, float("inf")))
        if self._take(container, worker, CONTEXT_BYTES, at_s):
            container.workers.append(worker)
            self._live[worker.pid] = worker, container

    def _take(self, container: Container, worker: Worker, size: int, at_s: float) -> bool:
        holding = [p for w in container.workers if w.ended_s > at_s for p in w.held()]
        if sum(p.size for p in holding) + container.shared_bytes + size > container.limit_bytes:
            return False
        worker.pieces.append(Piece(size, at_s))
        return True

    def _end(self, worker: Worker, at_s: float) -> None:
        """It ends or is killed; then the driver gives back what it had."""
        is_slow = self.chance.random() < 0.2
        worker.ended_s = at_s
        worker.gone_s = at_s + self.chance.uniform(0, _TEARDOWN_S if is_slow else 0.05)
        lag_s = self.chance.uniform(0, LATE_S) if self.chance.random() < 0.1 else 0
        worker.listed_s = worker.listed_s[0], worker.gone_s + lag_s
        for piece in worker.held():
            piece.to_s, piece.shown_s = at_s, worker.listed_s[1]
