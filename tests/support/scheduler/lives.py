"""Random lives of a simulated cluster under the extender, and what must hold in each of them.

`ClusterLife` makes pods of all kinds, lets some end and deletes some, while the API server fails in
every way it can, the extender is begun again and clocks jump. No pod that the extender bound may be
refused by the agent of its node while the API server does not fail, and no more than one of 1000
while it does: then an agent may not know a pod in time, or may not be able to tell what it gave.
When all pods have ended everything must be free again. A
breach is an AssertionError that names the seed, which replays what was done up to the timing of
threads.
"""

import math
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace

from benchmarks.simulated_cluster.agent_cluster import AgentCluster
from benchmarks.simulated_cluster.faults import CUT
from benchmarks.simulated_cluster.machines import DOMAIN
from benchmarks.simulated_cluster.object_store import Stored
from benchmarks.simulated_cluster.pod_shapes import NEVER, random_shape
from benchmarks.simulated_cluster.scheduler import SimulatedScheduler
from deviceplugin.model.chosen_gpus import CHOSEN_GPUS_KEY, ChosenGpus
from support.waiting import wait_until

CHOSEN = f"{DOMAIN}/{CHOSEN_GPUS_KEY}"
#: Patterns of calls that are the extender's, and of those by which agents publish. An agent that
#: cannot follow the pods of its node, though its kubelet can, may refuse one.
EXTENDERS_CALLS = ("binding", "status.phase", "GET .*leases", "PATCH .*leases")
#: So many pods without a node at most, or the life waits for some to end.
MOST_PENDING = 25
#: So many calls of one kind in a row at most. An extender that begins waits twice as long after
#: each refused list: after eight of them it would not begin within a test's patience.
MOST_REFUSED = 4
#: How often each step is taken, of all.
STEPS: Mapping[str, int] = {
    "create": 600, "end": 260, "delete": 40, "delete pending": 8, "never": 6, "spoof": 20,
    "drop watches": 4, "expire": 3, "refuse": 8, "lose answer": 8, "slow": 3, "away": 2,
    "begin again": 4, "clock": 4,
}  # fmt: skip
FAULTS = frozenset(("drop watches", "expire", "refuse", "lose answer", "slow", "away"))
CALM_STEPS = {name: weight for name, weight in STEPS.items() if name not in FAULTS}


class ClusterLife:
    """One life; `run` lives it.

    Attributes:
        done: how often each step was taken.
    """

    def __init__(
        self,
        cluster: AgentCluster,
        scheduler: SimulatedScheduler,
        restart: Callable[[], None],
        jump: Callable[[float], None],
        seed: int,
        steps: Mapping[str, int] = STEPS,
    ) -> None:
        """Has not begun.

        Args:
            restart: begins the extender again.
            jump: sets wall clocks forth or back by some seconds.
        """
        self.cluster, self.scheduler, self.seed = cluster, scheduler, seed
        self._restart, self._jump, self._weights = restart, jump, steps
        self._chance = random.Random(seed)
        self.done: Counter[str] = Counter()

    def run(self, admitted: int) -> None:
        """Lives until so many pods were admitted, and checks what is left then."""
        names, weights = list(self._weights), list(self._weights.values())
        steps: dict[str, Callable[[], None]] = {
            name: getattr(self, f"_{name.replace(' ', '_')}") for name in names
        }
        try:
            while self.cluster.admitted < admitted:
                (name,) = self._chance.choices(names, weights)
                self.done[name] += 1
                steps[name]()
                self._keep_going()
                self.check()
            self.cluster.server.faults.clear()
            self._settle()
        except AssertionError as error:
            raise AssertionError(f"seed {self.seed}, after {dict(self.done)}: {error}") from error

    def check(self) -> None:
        """No pod was refused, or where parts fail no more than one of 1000."""
        refusals = self.cluster.refusals
        most = 0 if FAULTS.isdisjoint(self._weights) else math.ceil(self.done["create"] / 1000)
        assert len(refusals) <= most, (
            f"{len(refusals)} pods were bound and refused, first {refusals[0]}"
        )

    # ---- pods --------------------------------------------------------------------------------

    def _create(self) -> None:
        self.cluster.create(random_shape(self._chance))

    def _never(self) -> None:
        self.cluster.create(self._chance.choice(NEVER))

    def _spoof(self) -> None:
        """Somebody writes a choice of GPUs, or nonsense, by hand."""
        shape = random_shape(self._chance)
        node = self._chance.choice(list(self.cluster.nodes))
        gpu = f"GPU-{node}-{self._chance.randrange(8)}"
        said = self._chance.choice(
            (
                ChosenGpus(node, {f"c{n}": (gpu,) for n in range(4)}).encoded(),
                ChosenGpus("elsewhere", {"c0": ("GPU-of-nobody",)}).encoded(),
                '{"node":"n000","containers":{"c0":[' + '"x",' * 3 + '"x"]}}',
                "{",
                "x" * 40_000,
            )
        )
        self.cluster.create(replace(shape, annotations={CHOSEN: said}))

    def _end(self) -> None:
        running = self.cluster.running()
        if running:
            self.cluster.end(self._chance.choice(running))

    def _delete(self) -> None:
        bound = [p for p in self.cluster.pods() if p.content["spec"].get("nodeName")]
        if bound:
            self.cluster.delete(self._chance.choice(bound))

    def _delete_pending(self) -> None:
        waiting = self._unbound()
        if waiting:
            self.cluster.delete(self._chance.choice(waiting))

    def _unbound(self) -> list[Stored]:
        return [p for p in self.cluster.pods() if not p.content["spec"].get("nodeName")]

    # ---- what goes wrong ---------------------------------------------------------------------

    def _drop_watches(self) -> None:
        self.cluster.server.drop_watches()

    def _expire(self) -> None:
        self.cluster.server.expire()

    def _refuse(self) -> None:
        status = self._chance.choice((409, 410, 429, 500, 503))
        what = self._chance.choice(EXTENDERS_CALLS)
        faults = self.cluster.server.faults
        count = min(self._chance.randint(1, 4), MOST_REFUSED - faults.left(what))
        if count > 0:
            faults.plant(status, what, count)

    def _lose_answer(self) -> None:
        self.cluster.server.faults.plant(CUT, "binding", 1, self._chance.random() < 0.5)

    def _slow(self) -> None:
        self.cluster.server.faults.slow(0.03)
        time.sleep(0.3)
        self.cluster.server.faults.slow(0.0)

    def _away(self) -> None:
        self.cluster.server.stop()
        time.sleep(self._chance.uniform(0.1, 1.0))
        self.cluster.server.start()

    def _begin_again(self) -> None:
        self._restart()

    def _clock(self) -> None:
        self._jump(self._chance.choice((-7200.0, -5.0, 30.0, 7200.0)))

    # ---- until the end -----------------------------------------------------------------------

    def _keep_going(self) -> None:
        """Lets the scheduler come along, and pods end where nothing has room any more."""
        time.sleep(0.002)
        while self.scheduler.pending > MOST_PENDING:
            for _ in range(4):
                self._end()
            waiting = self._unbound()
            if waiting and self._chance.random() < 0.3:
                self.cluster.delete(self._chance.choice(waiting))
            time.sleep(0.05)

    def _settle(self) -> None:
        """Ends everything: what is left of it must be nothing."""
        for pod in self._unbound():
            self.cluster.delete(pod)
        wait_until(lambda: self._is_quiet(), "all pods are admitted or gone")
        self.check()
        for pod in self.cluster.running():
            self.cluster.end(pod)
        wait_until(lambda: not self.cluster.running(), "all pods have ended")

    def _is_quiet(self) -> bool:
        for pod in self._unbound():
            self.cluster.delete(pod)
        return not self.scheduler.pending and self.cluster.is_idle()
