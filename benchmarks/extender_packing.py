"""GPUs that stay whole and pods that node agents refuse, with the extender and without.

The same arrivals go to three: the extender and the default scheduler, each over nodes with the
agent's real core, and an off-line best-fit that knows every GPU at every moment and has nothing on
its way (`simulated_cluster.packing`). Arrivals fill the cluster to `LOAD`; then some pods end and
others come, again and again. After each of these steps the GPUs of which nobody has anything are
counted. A pod that is refused is made again, as by its controller, but given up after `MOST_TRIES`:
a controller would go on for ever; so is one that no node has room for.
"""

import os
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from deviceplugin.scheduler.cluster.follow import SETTLES_S
from libvgpu.errors import VgpuError

from .extender_nodes import DEFAULT, EXTENDER, GPUS, NAMESPACE, one
from .figure import Measurement
from .repeats import say
from .simulated_cluster.agent_cluster import AgentCluster
from .simulated_cluster.extender_process import running_extender
from .simulated_cluster.machines import LARGE
from .simulated_cluster.object_store import Stored
from .simulated_cluster.packing import BestFit, Wanted, made_up, packed_again, recorded
from .simulated_cluster.scheduler import SimulatedScheduler

NODES, LOAD, STEPS = 100, 0.7, 4
MOST_FEWER_PERCENT, MOST_REFUSED_PER_1000 = 2.0, 1.0
_QUICK_NODES, _QUICK_STEPS = 12, 1
MOST_TRIES = 5
_ENDS = 0.12
_UNITS = 80
_SEED, _PATIENCE_S, _POLL_S = 29, 180.0, 0.02
_PUBLISHED_S, _NOTHING_HAPPENS_S = 2.0, 5.0
_MEMORY = Path("/dev/shm")
MIXES: tuple[tuple[str, Callable[[random.Random], Wanted]], ...] = (
    ("recorded sizes", recorded),
    ("random sizes", made_up),
)


@dataclass(frozen=True, slots=True)
class Step:
    """Pods that end, then pods that come, by number; the latter with what they ask for."""

    ends: Sequence[int]
    comes: Sequence[tuple[int, Wanted]]


@dataclass
class Packed:
    """What became of the arrivals.

    Attributes:
        left_whole: after each step.
        refused: admissions that agents refused.
        admitted: and that they did not.
        given_up: pods that were refused again and again, or that no node had room for.
    """

    left_whole: list[int] = field(default_factory=list)
    refused: int = 0
    admitted: int = 0
    given_up: int = 0


def arrivals(
    make: Callable[[random.Random], Wanted], nodes: int, steps: int
) -> tuple[list[Step], dict[int, Wanted]]:
    """Returns the steps, and the pods that are there after the last one."""
    chance = random.Random(_SEED)
    there: dict[int, Wanted] = {}
    made = 0
    found = []
    for number in range(steps + 1):
        count = int(len(there) * _ENDS) if number else 0
        ends = sorted(chance.sample(sorted(there), count))
        for each in ends:
            del there[each]
        comes = []
        load = sum(each.load for each in there.values())
        while load < LOAD * nodes * GPUS:
            wanted = make(chance)
            load += wanted.load
            comes.append((made, wanted))
            there[made] = wanted
            made += 1
        found.append(Step(ends, comes))
    return found, there


def off_line(steps: Sequence[Step], nodes: int) -> list[int]:
    """Returns the GPUs that best-fit leaves whole, after each step."""
    fit = BestFit(nodes, GPUS, _UNITS)
    found = []
    for step in steps:
        for pod in step.ends:
            fit.end(pod)
        for pod, wanted in step.comes:
            fit.place(pod, wanted)
        found.append(fit.left_whole)
    return found


def measure_packing(*, is_quick: bool) -> list[Measurement]:
    """Returns what each leaves whole and what is refused.

    Raises:
        VgpuError: the extender does not start, or pods do not get to their nodes.
    """
    nodes, count = (_QUICK_NODES, _QUICK_STEPS) if is_quick else (NODES, STEPS)
    found = []
    for name, make in MIXES:
        steps, last = arrivals(make, nodes, count)
        best = off_line(steps, nodes)
        pods = sum(len(step.comes) for step in steps)
        case = f"{name}, {pods} pods on {nodes} simulated nodes x {GPUS} GPUs"
        again = packed_again(nodes, GPUS, _UNITS, last.values())
        for subject in (EXTENDER, DEFAULT):
            say(f"{case}, {subject}")
            packed = _packed(steps, nodes, is_default=subject == DEFAULT)
            found += _judged(case, subject, packed, best, again)
    return found


def _judged(
    case: str, subject: str, packed: Packed, best: Sequence[int], again: int
) -> list[Measurement]:
    is_ours = subject == EXTENDER
    fewer = max(
        100 * (each - got) / each for got, each in zip(packed.left_whole, best, strict=True)
    )
    # In the quick form one GPU is already more than the bar, because there are so few.
    most = max(MOST_FEWER_PERCENT, 100 / min(best))
    tried = packed.admitted + packed.refused
    return [
        one(
            case, "GPUs left whole, fewer than off-line best-fit leaves", "%", fewer,
            f"the worst of all steps; {packed.left_whole} of {best}; all at once: {again}",
            most=most if is_ours else None, subject=subject,
        ),
        one(
            case, "refused admissions of 1000 pods", "", 1000 * packed.refused / tried,
            f"{packed.refused} of {tried}, {packed.given_up} pods given up",
            most=MOST_REFUSED_PER_1000 if is_ours else None, subject=subject,
        ),
    ]  # fmt: skip


def _packed(steps: Sequence[Step], nodes: int, *, is_default: bool) -> Packed:
    """Plays the steps on nodes with real agents."""
    base = _MEMORY if os.access(_MEMORY, os.W_OK) else None
    with (
        tempfile.TemporaryDirectory(prefix="vgpu-", dir=base) as name,
        AgentCluster(Path(name), [LARGE] * nodes, _SEED) as cluster,
        _scheduling(cluster, Path(name), is_default) as scheduler,
    ):
        played = _Play(cluster, scheduler)
        for step in steps:
            played.step(step)
        return played.packed


class _Play:
    """A cluster, and which of its pods is which arrival."""

    def __init__(self, cluster: AgentCluster, scheduler: SimulatedScheduler) -> None:
        self.packed = Packed()
        self._cluster, self._scheduler = cluster, scheduler
        self._wanted: dict[int, Wanted] = {}
        self._pods: dict[int, Stored] = {}
        self._tries: Counter[int] = Counter()
        self._done = time.monotonic(), 0  # when how many admissions had been made

    def step(self, step: Step) -> None:
        """Lets pods end and others come, and counts what is whole then."""
        for pod in self._pods.keys() & set(step.ends):
            self._cluster.end(self._now(self._pods.pop(pod)))
            del self._wanted[pod]
        if step.ends:
            _wait("what has ended is not freed", lambda: self._held() == self._containers())
            time.sleep(_PUBLISHED_S)
        self._done = time.monotonic(), self._done[1]
        for pod, wanted in step.comes:
            self._wanted[pod] = wanted
            self._pods[pod] = self._cluster.create(wanted.shape())
        _wait("pods do not come to run", self._all_run)
        self.packed.left_whole.append(self._left_whole())
        self.packed.admitted = self._cluster.admitted
        self.packed.refused = len(self._cluster.refusals)

    def _all_run(self) -> bool:
        """Returns whether all run; those that were refused are made again, and those that no node
        has room for are given up when nothing happens any more.
        """
        waiting = []
        for pod, stored in list(self._pods.items()):
            phase = self._now(stored).content["status"]["phase"]
            if phase == "Pending":
                waiting.append(pod)
            elif phase == "Failed":
                self._tries[pod] += 1
                if self._tries[pod] < MOST_TRIES:
                    self._pods[pod] = self._cluster.create(self._wanted[pod].shape())
                    waiting.append(pod)
                else:
                    self._give_up(pod)
        done = self._cluster.admitted + len(self._cluster.refusals)
        if done != self._done[1]:
            self._done = time.monotonic(), done
        if waiting and time.monotonic() - self._done[0] > _NOTHING_HAPPENS_S:
            for pod in waiting:
                self._cluster.delete(self._pods[pod])
                self._give_up(pod)
        return not waiting and self._cluster.is_idle()

    def _give_up(self, pod: int) -> None:
        self.packed.given_up += 1
        del self._pods[pod], self._wanted[pod]

    def _now(self, pod: Stored) -> Stored:
        return self._cluster.pod(pod.namespace, pod.name)

    def _held(self) -> int:
        return sum(len(node.service.allocations()) for node in self._cluster.nodes.values())

    def _containers(self) -> int:
        return len(self._wanted)

    def _left_whole(self) -> int:
        held = {
            uuid
            for node in self._cluster.nodes.values()
            for allocation, _ in node.service.allocations()
            for uuid in allocation.uuids
        }
        return len(self._cluster.nodes) * GPUS - len(held)


@contextmanager
def _scheduling(
    cluster: AgentCluster, base: Path, is_default: bool
) -> Iterator[SimulatedScheduler]:
    """Gives a scheduler that runs, with the extender or without."""
    store, allocatable = cluster.server.store, cluster.allocatable

    @contextmanager
    def running(scheduler: SimulatedScheduler) -> Iterator[SimulatedScheduler]:
        scheduler.start()
        try:
            yield scheduler
        finally:
            scheduler.stop()

    if is_default:
        with running(SimulatedScheduler(store, allocatable, None)) as scheduler:
            yield scheduler
        return
    published = cluster.server.counted
    _wait("not all agents have published", lambda: published["POST leases"] >= len(allocatable))
    with (
        running_extender(cluster.server, base, NAMESPACE) as extender,
        running(SimulatedScheduler(store, allocatable, extender.client())) as scheduler,
    ):
        time.sleep(SETTLES_S)  # arrivals meet one that has long been running
        yield scheduler


def _wait(what: str, is_so: Callable[[], bool]) -> None:
    give_up_s = time.monotonic() + _PATIENCE_S
    while not is_so():
        if time.monotonic() > give_up_s:
            raise VgpuError(f"after {_PATIENCE_S:g} s {what}")
        time.sleep(_POLL_S)
