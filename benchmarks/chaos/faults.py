"""What goes wrong on a `chaos` node, by chance, and how it ends again.

All of it is done by one thread, which waits for nobody: so a stopped agent goes on in time, whoever
waits for it. `Faults.rest` ends whatever lasts. What can go wrong is in `kinds`.
"""

import random
import threading
import time
from collections.abc import Callable, Mapping
from heapq import heappop, heappush

from libvgpu.sim import faults

from .config import put
from .log import Log
from .node import ChaosNode
from .tenants import Tenant

_LASTS_S = (0.05, 0.3, 1.0, 3.0, 8.0)
_BETWEEN_S = 0.7
_POLL_S = 0.02
_TAKEN_PART = 0.6

End = Callable[[], object]


class Faults:
    """The faults of one node.

    Attributes:
        clock_off_s: by how much the agent's wall clock is off.
        hit: by UUID, until when programs may fail for what happened to their GPU.
        are_about: some last, or have just ended.
    """

    def __init__(
        self,
        node: ChaosNode,
        tenants: Callable[[], list[Tenant]],
        kinds: "Mapping[str, Callable[[Faults], None]]",
        log: Log,
        chance: random.Random,
    ) -> None:
        """Has done nothing yet.

        Args:
            tenants: returns those that are there.
            kinds: what begins a fault, by name.
        """
        self.node, self.log, self.chance = node, log, chance
        self._tenants, self._kinds = tenants, kinds
        self.clock_off_s = 0.0
        self.hit: dict[str, float] = {}
        self.are_about = False
        self._ends: list[tuple[float, int, str, End]] = []
        self._lasting: set[str] = set()
        self._count = 0
        self._is_over = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Begins a storm of some of the kinds."""
        kinds = [kind for kind in self._kinds if self.chance.random() < _TAKEN_PART] or list(
            self._kinds
        )
        self.log.note("storm", ", ".join(kinds))
        self._is_over.clear()
        self.are_about = True
        self._thread = threading.Thread(target=self._run, args=(kinds,), name="faults")
        self._thread.start()

    def rest(self) -> None:
        """Ends the storm and all that lasts."""
        self._is_over.set()
        if self._thread is not None:
            self._thread.join()
        while self._ends:
            self._end_next()
        faults.clear(self.node.machine)
        put(self.node.config, self.node.sharing.text())

    def revive(self, name: str) -> None:
        """Starts the agent or the runner again, if it has ended by itself."""
        if self.node.ended(name) is not None:
            self.log.note(f"{name} ended by itself", self.node.last_words(name, 1))
            self.node.start(name)

    def has_hit(self, uuid: str) -> bool:
        """Returns whether programs on a GPU may fail for what happened since the last rest."""
        return self.hit.get(uuid) == float("inf")

    def calm_down(self) -> None:
        """From now on nothing that begins may fail."""
        self.hit = dict.fromkeys(self.hit, time.monotonic())
        self.are_about = False

    def _run(self, kinds: list[str]) -> None:
        next_s = time.monotonic()
        while not self._is_over.wait(_POLL_S):
            while self._ends and self._ends[0][0] <= time.monotonic():
                self._end_next()
            for name in ("agent", "runner"):
                if name not in self._lasting:
                    self.revive(name)
            if time.monotonic() >= next_s:
                next_s += self.chance.expovariate(1 / _BETWEEN_S)
                self._kinds[self.chance.choice(kinds)](self)

    def _end_next(self) -> None:
        _, _, what, end = heappop(self._ends)
        self._lasting.discard(what)
        end()

    # ---- for kinds -----------------------------------------------------------------------------

    def lasts(self, what: str) -> bool:
        """Returns whether a fault is there."""
        return what in self._lasting

    def later(self, what: str, end: End) -> None:
        """Has a fault last until it is ended later; of one kind there is one at a time."""
        self._lasting.add(what)
        self._count += 1
        at_s = time.monotonic() + self.chance.choice(_LASTS_S)
        heappush(self._ends, (at_s, self._count, what, end))

    def running(self) -> list[Tenant]:
        """Returns the tenants that were started."""
        return [each for each in self._tenants() if each.first is not None]

    def hits(self, *uuids: str) -> None:
        """Notes that programs on these GPUs may fail."""
        self.hit |= dict.fromkeys(uuids, float("inf"))

    def start_again(self, name: str) -> None:
        """Starts what was told to end; once it has."""
        if self.node.ended(name) is None and not self._is_over.is_set():
            self.later(name, lambda: self.start_again(name))  # it takes its time
        else:
            self.node.start(name)
