"""The life of a `chaos` node: pods come, start, work and go, through storms and rests.

What must always hold is looked at all the time. At a rest all faults have ended, programs stand
still, and all books must come to agree; how long that takes says nothing about the machine, so it
is waited for, far longer than the agent needs.
"""

import random
import time
from collections.abc import Callable, Iterator

from . import observed
from .containers import Containers
from .log import Log
from .node import ChaosNode
from .tenants import Tenant

#: In seconds and in looks; longer than a critical XID counts, and than an agent waits for anything.
_SETTLES_S, _AGREES_S = 240.0, 30.0
_POLL_S = 0.25
_CHECK_S = 0.5
_STILL = "programs do not stand still"


class Life:
    """One run; `live` and `rest` in turn, by one thread.

    Attributes:
        checks: how often what must always hold was looked at.
        rests: how many there were.
        slowest_rest_s: how long the longest took.
    """

    def __init__(self, node: ChaosNode, count: int, log: Log, seed: int) -> None:
        """Has nobody yet.

        Args:
            count: of tenants that the node is to have.
        """
        self.node, self.log, self._most = node, log, count
        self._chance = random.Random(f"{seed} life")
        self.containers = Containers(node, log, seed)
        self.faults, self._board = self.containers.faults, self.containers.board
        self.slowest_rest_s = 0.0
        self.checks = self.rests = 0
        self._checked_s = 0.0

    @property
    def _tenants(self) -> list[Tenant]:
        return self.containers.tenants

    # ---- a storm -------------------------------------------------------------------------------

    def live(self, seconds: float) -> None:
        """Lives so long."""
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            self._step()
            time.sleep(self._chance.expovariate(20))

    def fill(self, most_s: float) -> None:
        """Lives in peace until all tenants are there or one has no room, but not longer."""
        end_s = time.monotonic() + most_s
        while len(self._tenants) < self._most and time.monotonic() < end_s:
            if not self.containers.admit(self.containers.asked()):
                return
            self._tend()

    def _step(self) -> None:
        kind = self._chance.random()
        is_due = time.monotonic() >= self.containers.admits_from_s
        if is_due and len(self._tenants) < self._most and kind < 0.7:
            self.containers.admit(self.containers.asked())
        elif kind < 0.75:
            going = [each for each in self._tenants if not self.containers.is_starting(each)]
            if going and len(self._tenants) > self._most * 3 // 4:
                self.containers.finish(self._chance.choice(going))
        elif kind < 0.755:
            self._restart_kubelet()
        self._tend()

    def _tend(self) -> None:
        self.containers.start_some()
        self.containers.look_at_programs()
        self._check()

    def _check(self) -> None:
        if time.monotonic() - self._checked_s < _CHECK_S:
            return
        self._checked_s = time.monotonic()
        self.checks += 1
        for breach in observed.always(self.node, self._tenants):
            self.log.violated(breach)

    def _restart_kubelet(self) -> None:
        self.log.note("kubelet restarted")
        self.containers.wait_for_starts()
        with self.node.kubelet_lock:
            self.node.kubelet.stop()
            time.sleep(self._chance.choice((0.0, 0.5, 2.0)))
            self.node.kubelet.start()

    # ---- a rest --------------------------------------------------------------------------------

    def rest(self, is_end: bool) -> None:
        """Ends all faults and has all books agree; then all goes on, or all pods end."""
        began_s = time.monotonic()
        self.rests += 1
        self.log.note("rest")
        self.faults.rest()
        self._settle(self._not_well)
        self.faults.calm_down()
        self._settle(self._not_started)
        self._board.pause()
        self._settle(self._not_at_rest, _AGREES_S)
        before = {p.seat: self._board.loops(p.seat) for t in self._tenants for p in t.programs}
        self._board.go_on()
        self._settle(lambda: self._not_at_work(before))
        self._look_at_logs()
        if is_end:
            self._end_all()
        else:
            self._try_one()
        took_s = time.monotonic() - began_s
        self.slowest_rest_s = max(self.slowest_rest_s, took_s)
        self.log.note("rested", f"{took_s:.1f} s, {len(self._tenants)} tenants")

    def _settle(self, breaches: Callable[[], Iterator[str]], most_s: float = _SETTLES_S) -> None:
        """Waits until nothing is wrong any more; on a slow machine longer, as looks take longer."""
        began_s, looks = time.monotonic(), 0
        while found := list(breaches()):
            looks += 1
            if min(looks, time.monotonic() - began_s) > most_s:
                for breach in found:
                    self.log.violated(f"still so after {looks} looks at rest: {breach}")
                return
            time.sleep(_POLL_S)
            self._check()

    def _not_well(self) -> Iterator[str]:
        """Restarts what runs under MPS daemons that ended: a person does so whom the agent told.

        A program that began while its GPU had no daemon has the GPU alone, and keeps others out.
        """
        for name in ("agent", "runner"):
            self.faults.revive(name)
        for tenant in self._tenants:
            is_honest = tenant.first is not None and not tenant.attack
            if is_honest and tenant.is_mps and self.faults.has_hit(tenant.uuid):
                tenant.end_programs(self._board)
        problem = self.node.problem()
        if problem:
            yield problem

    def _not_started(self) -> Iterator[str]:
        self.containers.start_some()
        self.containers.look_at_programs(heals=True)
        for tenant in self._tenants:
            if not tenant.is_running:
                yield f"{tenant.name} does not start"
            elif not tenant.attack:
                working = [p for p in tenant.programs if self._board.loops(p.seat)]
                if len(working) < tenant.processes:
                    yield f"{tenant.name} has {len(working)} of {tenant.processes} programs at work"

    def _not_at_rest(self) -> Iterator[str]:
        self.containers.look_at_programs()
        programs = [p for t in self._tenants for p in t.programs]
        if not all(self._board.stands(p.seat) for p in programs):
            yield _STILL
        else:
            yield from observed.at_rest(self.node, self._tenants)

    def _not_at_work(self, before: dict[int, int]) -> Iterator[str]:
        self.containers.look_at_programs()
        for tenant in self._tenants:
            for program in tenant.programs:
                if self._board.loops(program.seat) <= before.get(program.seat, -1):
                    yield f"a program of {tenant.name} does nothing"

    def _look_at_logs(self) -> None:
        for path in (self.node.logs / f"{name}.log" for name in ("agent", "runner")):
            for line in path.read_text(errors="replace").splitlines():
                if line.startswith("Traceback"):
                    self.log.violated(f"{path.name} has a traceback")

    def _try_one(self) -> None:
        """With room and without faults nobody is refused.

        Attackers may fill the run directory until the agent has seen that they are gone. What they
        leave is no room, as their GPU may drain.
        """
        tenants = list(self._tenants)
        for tenant in [each for each in tenants if each.attack]:
            self.containers.finish(tenant)
        self._settle(lambda: observed.books_differ(self.node, self._tenants))
        asked = self.containers.asked()
        has_room = observed.has_room(self.node, tenants, asked)
        if not self.containers.admit(asked) and has_room:
            self.log.violated(f"{asked} were refused at rest, though a GPU has room")
        self._settle(self._not_started)

    def _end_all(self) -> None:
        self.containers.wait_for_starts()
        for tenant in list(self._tenants):
            self.containers.finish(tenant)
        self._settle(lambda: observed.at_end(self.node))
