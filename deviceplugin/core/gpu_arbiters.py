"""The node's arbiters: one per GPU that containers share in time, run in the agent.

A duty of the agent's loop. It reads the slices' own files and never the service, so neither
`Allocate` nor the arbiters wait for each other; what an agent before this one left running is found
in the same files.

Nobody can take the GPU from a kernel that outlasts its window. The arbiter charges it to the
container; here it is said, within a second, at most once a minute for each GPU.
"""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path

from deviceplugin import runtime
from deviceplugin.log import event
from libvgpu.arbiter_set import ArbiterSet
from libvgpu.arbitration import Arbiter, ArbiterCounters, hold_gpu

OVERRUNS_EVERY_S = 60.0
#: How often the arbiters are asked for them; at every look it would be a tenth of an idle agent.
_COUNTERS_EVERY_S = 1.0


class NodeArbiters:
    """The arbiters of one run directory; used by the agent's main thread.

    The watch's thread calls `counters` and `withhold`, behind a lock.

    Attributes:
        counted: what each GPU's arbiter has counted, a second ago at most; for any thread, since
            it is replaced as a whole.
    """

    def __init__(self, run_dir: Path, clock: Callable[[], float] = runtime.monotonic) -> None:
        """Does nothing yet.

        Args:
            run_dir: whose slices are served.
            clock: seconds, from any start.
        """
        self._arbiters = ArbiterSet(run_dir, make=Arbiter, hold=hold_gpu)
        self._clock, self._lock = clock, runtime.lock()
        self.counted: Mapping[str, ArbiterCounters] = {}
        self._counted_at_s = float("-inf")
        self._told: dict[str, tuple[float, int]] = {}  # GPU -> when, and how many overruns then

    def look(self) -> None:
        """Follows the slices as they come, go and change."""
        with self._lock:
            changes = self._arbiters.look()
        for change in changes:
            level = logging.ERROR if change.reason else logging.INFO
            event(level, change.what, gpu=change.uuid, reason=change.reason or "none")
        self._count()

    def stop(self) -> None:
        """Ends all arbiters; containers that go on keep to their own caps."""
        with self._lock:
            self._arbiters.stop()

    def counters(self) -> Mapping[str, ArbiterCounters]:
        """Returns what each GPU's arbiter has counted up to now."""
        with self._lock:
            return self._arbiters.counters()

    def withhold(self, uuid: str, directory: Path, seconds: float) -> bool:
        """Gives a container nothing of a GPU for so long (`ArbiterSet.withhold`)."""
        with self._lock:
            return self._arbiters.withhold(uuid, directory, seconds)

    def _count(self) -> None:
        now_s = self._clock()
        if now_s < self._counted_at_s + _COUNTERS_EVERY_S:
            return
        self._counted_at_s = now_s
        self.counted = self.counters()
        self._tell_overruns(now_s)

    def _tell_overruns(self, now_s: float) -> None:
        self._told = {uuid: told for uuid, told in self._told.items() if uuid in self.counted}
        for uuid, counted in self.counted.items():
            told_at_s, told = self._told.get(uuid, (float("-inf"), 0))
            if counted.overruns > told and now_s >= told_at_s + OVERRUNS_EVERY_S:
                event(
                    logging.WARNING,
                    "work outlasted its windows and is charged as debt",
                    gpu=uuid,
                    times=counted.overruns - told,
                    longest_ms=round(counted.longest_overrun_ns / 1e6),
                )
                self._told[uuid] = (now_s, counted.overruns)
