"""The containers of a `chaos` node: admitted, started again and again, looked at, and ended.

The kubelet's calls for a start are made side by side. All else is for one thread.
"""

import random
import time
from concurrent.futures import Future, ThreadPoolExecutor

from benchmarks.hostile.attacks import ROWS
from benchmarks.hostile.container import KINDS, Attackers
from deviceplugin.testing import AdmissionFailed, ContainerManifest, PodManifest, RunOptions

from . import invariants, observed
from .board import Board
from .config import FAMILIES
from .faults import Faults
from .kinds import KINDS as FAULTS
from .log import Log
from .node import CONTEXT_BYTES, ChaosNode
from .tenants import Tenant, start_program, why_ended

_STARTS = 4
_BACKS_OFF_S = 1.0
#: Of the looks at a container of which a program is dead.
_HEALED_PART = 0.03
_HOSTILE = 3
_CORE, _MEMORY = (3, 11), (3, 5)
_MPS_PART, _HOSTILE_PART = 0.2, 0.2


class Containers:
    """The pods, and what runs in them.

    Attributes:
        tenants: that are there.
        faults: of their node.
        admits_from_s: when a pod that was refused may be tried again.
        programs: how many were started.
    """

    def __init__(self, node: ChaosNode, log: Log, seed: int) -> None:
        """Has nobody yet."""
        self._node, self._log = node, log
        self.chance = random.Random(f"{seed} containers")
        self.tenants: list[Tenant] = []
        chance = random.Random(f"{seed} faults")
        self.faults = Faults(node, lambda: list(self.tenants), FAULTS, log, chance)
        self.admits_from_s = 0.0
        self.admitted = self.refused = self.programs = 0
        self.board = Board(node.base / "board")
        self._attackers = Attackers(node.base, node.logs / "attackers.log")
        self._starts = ThreadPoolExecutor(_STARTS)
        self._starting: dict[str, Future[RunOptions]] = {}

    def asked(self) -> dict[str, int]:
        """Returns what a pod asks for."""
        family = FAMILIES[self.chance.random() < _MPS_PART]
        return {
            f"nvidia.com/{family}-core": self.chance.randint(*_CORE),
            f"nvidia.com/{family}-memory": self.chance.randint(*_MEMORY),
        }

    def admit(self, asked: dict[str, int]) -> bool:
        """Has a pod admitted; returns whether it was."""
        number = self.admitted + self.refused
        manifest = PodManifest(f"pod-{number}", (ContainerManifest("c", limits=asked),))
        try:
            tenant = Tenant(self._node.kubelet.admit(manifest), self.chance.randint(1, 2))
        except AdmissionFailed as error:
            self.refused += 1
            self.admits_from_s = time.monotonic() + _BACKS_OFF_S
            self._log.note("refused", str(error))
            if "node agent failed" in str(error):
                self._log.violated(str(error))
            return False
        self.admitted += 1
        hostile = sum(bool(each.attack) for each in self.tenants)
        if hostile < _HOSTILE and self.chance.random() < _HOSTILE_PART:
            tenant.attack = self.chance.choice(ROWS).name
        self.tenants.append(tenant)
        for breach in observed.not_recorded(self._node, tenant):
            self._log.violated(breach)
        return True

    def finish(self, tenant: Tenant) -> None:
        """Ends a pod."""
        tenant.end_programs(self.board)
        self.tenants.remove(tenant)
        self._node.kubelet.finish(tenant.pod)

    def start_some(self) -> None:
        """Starts containers as the kubelet does, also those that have ended."""
        self._see_starts()
        for tenant in self.tenants:
            if self._is_to_start(tenant) and len(self._starting) < _STARTS:
                begun = self._starts.submit(self._node.kubelet.run_options, tenant.pod, "c")
                self._starting[tenant.name] = begun

    def _see_starts(self) -> None:
        for tenant in list(self.tenants):
            future = self._starting.get(tenant.name)
            if future is not None and future.done():
                del self._starting[tenant.name]
                self._started(tenant, future)

    def is_starting(self, tenant: Tenant) -> bool:
        """Returns whether the kubelet is about to start a container."""
        return tenant.name in self._starting

    def _is_to_start(self, tenant: Tenant) -> bool:
        is_due = not tenant.is_running and time.monotonic() >= tenant.starts_from_s
        return is_due and not self.is_starting(tenant)

    def _started(self, tenant: Tenant, future: "Future[RunOptions]") -> None:
        try:
            tenant.options = future.result()
        except AdmissionFailed as error:  # the kubelet tries again
            tenant.starts_from_s = time.monotonic() + _BACKS_OFF_S
            self._log.note("start refused", str(error))
            self._end_if_split(tenant)
            return
        if tenant.pod.containers[0].unasked and self._end_if_split(tenant):
            return  # the agent could not refuse it
        if tenant.first is None:
            tenant.first = tenant.files()
            breaches = list(observed.as_asked(tenant))
            for breach in breaches:
                self._log.violated(breach)
            if breaches:
                self.finish(tenant)
                return
        tenant.is_running = True
        if tenant.attack:
            self._log.note("attack", f"{tenant.name}: {tenant.attack}")
            kind = self.chance.choice(KINDS)
            attack = self._attackers.attack(kind, tenant.attack, tenant.binds())
            tenant.ends.enter_context(attack)
        else:
            for _ in range(tenant.processes):
                self._start_program(tenant)

    def _end_if_split(self, tenant: Tenant) -> bool:
        """A pair that a fault split must not start, and its pod is ended by whoever made it."""
        given = tenant.given()
        breaches = list(invariants.split([given]))
        if not breaches and len(given.files) > 1:
            breaches.append(f"{given.name} has {len(given.files)} slices of one GPU")
        if breaches:
            self._log.note("split pod ended", tenant.name)
            self.finish(tenant)
        for breach in () if self.faults.are_about else breaches:
            self._log.violated(f"without any fault {breach}")
        return bool(breaches)

    def look_at_programs(self, heals: bool = False) -> None:
        """Looks what programs say, and ends containers of which some are dead.

        Args:
            heals: all of these; else some later.
        """
        for tenant in self.tenants:
            for program in list(tenant.programs):
                breach = self.board.wrong(program.seat)
                if program.process.poll() is not None:
                    tenant.programs.remove(program)
                    may_fail = self.faults.hit.get(tenant.uuid, 0.0) >= program.began_s
                    breach = breach or why_ended(program, self.board, may_fail)
                    self.board.leave(program.seat)
                if breach:
                    self._log.violated(f"a program of {tenant.name}: {breach}")
            is_broken = tenant.is_running and len(tenant.programs) < tenant.processes
            if is_broken and not tenant.attack and (heals or self.chance.random() < _HEALED_PART):
                tenant.end_programs(self.board)

    def _start_program(self, tenant: Tenant) -> None:
        self.programs += 1
        start_program(
            tenant, self._node.client, self.board, self._node.machine.environment(),
            self._node.logs / "tenants.log", self.chance.randrange(1 << 31), time.monotonic(),
            CONTEXT_BYTES,
        )  # fmt: skip

    def wait_for_starts(self) -> None:
        """Waits until nothing is asked of the kubelet any more."""
        for future in self._starting.values():
            future.exception()
        self._see_starts()

    def close(self) -> None:
        """Ends all that was started."""
        self.faults.rest()
        for tenant in self.tenants:
            tenant.end_programs(self.board)
        self._starts.shutdown()
        self._attackers.close()
