"""The thread that watches what the shim cannot: memory and processes that NVML alone shows.

Every `IDLE_S` it asks NVML for the processes on each shared GPU. While there are any it does so
every `ACTIVE_S`, and compares what they hold with the ledgers of the allocations that they belong
to (`process_attribution`):

* a container's steady excess (`unaccounted_memory`) is charged: it goes into `limits`, and back to
  zero when it goes;
* a process of a container that its ledger does not know *bypasses* its slice, and so do the largest
  ones of a container that holds more than its slice ever was, whatever its ledger says; one that
  belongs to no allocation is *foreign*. All are told of, in log, metrics, Events and ``/v1/state``;
* a container that makes its `usage` unreadable, steadily, is *damaged*: told of the same way, and
  its processes on GPUs count as bypassing, since nothing accounts for them;
* a container that takes more of a GPU's time than its share waits until the share is kept, and is
  told of if its books hide it (`time_watch`);
* by the policy ``terminate`` a bypassing process is ended, if its mounts name the container, or its
  cgroup does whose container is known, and, looked at once more behind a pidfd, start time, cgroup
  and container are still the same.

The thread has everything here to itself; it meets the rest in `WatchedNode` (which takes the
agent's lock for a moment), and `findings` is replaced whole. A call of NVML may not return: then
only its GPU is not looked at.
"""

import contextlib
import logging
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from deviceplugin import runtime
from deviceplugin.log import LOGGER, event
from deviceplugin.model.agent_config import WatchPolicy
from deviceplugin.model.notices import EventReason, node_notice
from deviceplugin.policy.limits.learnt_sizes import MeasuredSizes
from deviceplugin.store.slice_peaks import SlicePeaks
from libvgpu.errors import VgpuError

from . import procfs
from .comparison import Charges, ComparedAllocation, MemoryComparison
from .gpu_time import LOOK_CLOSELY_S
from .nvml_processes import GpuReading, read_gpus
from .pid_visibility import PidVisibility, has_own_pid_namespace
from .process_attribution import ProcessAttribution
from .report import ChargedMemory, ForgedTime, Ration, SeenProcess, WatchFindings
from .telling import (
    say_bypassing,
    say_charge,
    say_damaged,
    say_foreign,
    say_forged,
    say_killed,
)
from .time_watch import TimeWatch
from .unaccounted_memory import Steady

ACTIVE_S = 1.05
#: With the window of `unaccounted_memory`, a process is reported within 5 s all the same.
IDLE_S = 1.75


class WatchedNode(Protocol):
    """The agent, as the watch needs it; each method takes the agent's lock for a moment."""

    def shared_gpus(self) -> Collection[str]:
        """Returns the UUIDs of the shared GPUs."""
        ...

    def watched(self) -> Sequence[ComparedAllocation]:
        """Returns the agent's allocations."""
        ...

    def set_unaccounted(self, charges: Charges) -> None:
        """Charges allocations for memory that the shim does not count."""
        ...

    def note_sizes(self, found: Sequence[MeasuredSizes]) -> None:
        """Takes what containers measured of contexts and blocks."""
        ...


class MemoryWatch:
    """Watches from `start` to `stop`.

    Attributes:
        policy: what it does about a process that bypasses the shim; any thread may set another.
        times: watches the GPUs' time, where arbiters share it; set before the start.
    """

    def __init__(
        self,
        node: WatchedNode,
        attribution: ProcessAttribution,
        policy: WatchPolicy,
        peaks: SlicePeaks,
        read: Callable[[Sequence[str]], Mapping[str, GpuReading]] = read_gpus,
        clock: Callable[[], float] = runtime.monotonic,
        turned: Callable[[], None] = lambda: None,
        mps_daemons: Callable[[], Mapping[str, int]] = dict,
    ) -> None:
        """Makes a watch that does not run yet.

        Args:
            node: whose processes are watched.
            attribution: finds the container of a process.
            policy: what to do about a process that bypasses the shim.
            peaks: the most that slices were.
            read: asks NVML.
            clock: seconds, never back.
            turned: called each time the watch comes round.
            mps_daemons: returns the pids of the MPS control daemons that are ours, by GPU.
        """
        self.times: TimeWatch | None = None
        self._turned, self._mps_daemons = turned, mps_daemons
        self.policy = policy
        self.findings = WatchFindings(policy=policy)
        self._node, self._attribution, self._peaks = node, attribution, peaks
        self._read, self._clock = read, clock
        self._steady, self._ration = Steady(), Ration()
        self._blindness = PidVisibility(has_own_pid_namespace())
        self._ended = 0
        self._dying: set[tuple[int, int]] = set()
        self._stop = runtime.event()
        self._thread = runtime.thread(target=self._run, name="memory")

    def start(self) -> None:
        """Begins."""
        self._thread.start()

    def stop(self) -> None:
        """Changes nothing any more; the thread ends by itself."""
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.is_set():
            self._turned()
            try:
                is_active = self.look()
            except Exception as error:  # whatever NVML's bindings raise, the next check may do
                is_active = True
                problem = error.message if isinstance(error, VgpuError) else repr(error)
                if not isinstance(error, VgpuError) and problem != self.findings.problem:
                    LOGGER.exception("the processes on the GPUs could not be looked at")
                self._say_problem(problem)
            self._rest(ACTIVE_S if is_active else IDLE_S)

    def _rest(self, seconds: float) -> None:
        """Pauses until the next look; meanwhile only the time of suspect GPUs is looked at."""
        until_s = self._clock() + seconds
        while self.times is not None and self.times.is_suspicious and not self._stop.is_set():
            left_s = until_s - self._clock()
            if left_s <= LOOK_CLOSELY_S:
                break
            self._stop.wait(LOOK_CLOSELY_S)
            with contextlib.suppress(VgpuError):  # the next look says so
                self.times.look()
        self._stop.wait(max(0, until_s - self._clock()))

    def look(self) -> bool:
        """Looks once; returns whether there is anything to look at often.

        Raises:
            VgpuError: NVML does not answer, or limits cannot be written.
        """
        gpus = self._node.shared_gpus()
        readings = self._read(tuple(gpus)) if gpus else {}
        pids = {pid for reading in readings.values() for pid in reading.memory_bytes}
        pids.discard(os.getpid())
        watched = {each.allocation.allocation_id: each for each in self._node.watched()}
        found = self._attribution.of(pids, watched.keys())
        problem = self._blindness.judge(
            pids,
            found.keys(),
            [(each.directory, each.limits) for each in watched.values()],
            sum(reading.unlisted_bytes for reading in readings.values()),
        )
        if problem:
            self._say_problem(problem)
            self._put(
                {(a, d.uuid): 0 for a, w in watched.items() for d in w.limits.devices}, watched
            )
            return False
        self._note_peaks(watched)
        check = MemoryComparison(
            self._mps_daemons(),
            watched,
            found,
            self._steady,
            self._peaks.most_bytes,
            self._clock(),
            lambda uuid: self._read((uuid,)).get(uuid),
            self._stop.wait,
        )
        check.examine_usage()
        for uuid, reading in readings.items():
            check.examine(uuid, reading)
        if self.times is not None:
            self.times.follow(watched, check.holders(readings))
            self.times.look()
        self._finish(check)
        return bool(pids)

    def _note_peaks(self, watched: Mapping[str, ComparedAllocation]) -> None:
        """Notes the most that each slice was: who was lowered may hold more for a while."""
        asked, limits = {}, {}
        for allocation_id, each in watched.items():
            for was, now in zip(each.asked.devices, each.limits.devices, strict=True):
                asked[allocation_id, now.uuid] = was.memory_limit_bytes
                limits[allocation_id, now.uuid] = now.memory_limit_bytes
        self._peaks.note(asked, limits)

    def _finish(self, check: MemoryComparison) -> None:
        self._steady.keep(check.keys)
        if self._stop.is_set():
            return
        self._put(check.charges, check.watched)
        if check.sizes:
            self._node.note_sizes(check.sizes)
        for each in check.foreign:
            if self._ration.may_tell(each.key, each.subject, check.now_s):
                say_foreign(each)
        for damaged in check.damaged:
            if self._ration.may_tell(damaged.key, f"usage of {damaged.allocation_id}", check.now_s):
                say_damaged(damaged)
        forged = self.times.forged if self.times else ()
        for time in forged:
            if self._ration.may_tell(time.key, f"time of {time.allocation_id}", check.now_s):
                say_forged(time)
        for each in check.bypassing:
            if self._ration.may_tell(each.key, each.subject, check.now_s):
                say_bypassing(each)
            if self.policy is WatchPolicy.TERMINATE:
                self._end(each, check)
        self._dying.intersection_update({b.process.key for b in check.found.values()})
        told = {each.key for each in (*check.foreign, *check.bypassing)}
        told |= {each.key for each in check.damaged} | {each.key for each in forged}
        self._ration.keep(told, check.now_s)
        self._say_findings(check, forged)

    def _put(
        self, wanted: Mapping[tuple[str, str], int], watched: Mapping[str, ComparedAllocation]
    ) -> None:
        """Puts charges into force where they differ from those that are, and tells of it."""
        changed: dict[str, dict[str, int]] = {}
        for (allocation_id, uuid), charge_bytes in wanted.items():
            each = watched[allocation_id]
            (device,) = (d for d in each.limits.devices if d.uuid == uuid)
            before = device.unaccounted_bytes
            if charge_bytes == before:
                continue
            changed.setdefault(allocation_id, {})[uuid] = charge_bytes
            say_charge(each.allocation, uuid, before, charge_bytes)
        if changed:
            self._node.set_unaccounted(changed)

    def _end(self, seen: SeenProcess, check: MemoryComparison) -> None:
        """Ends a process that bypasses its slice, if nothing about it is in doubt."""
        was = check.found[seen.pid]
        if not seen.memory_bytes or not was.is_certain:
            return
        if was.process.key in self._dying:
            return  # it takes its time to give a GPU back

        def is_still() -> bool:
            now = self._attribution.look(seen.pid, check.watched.keys())
            return now is not None and now.identity == was.identity

        if procfs.end(seen.pid, is_still):
            self._ended += 1
            self._dying.add(was.process.key)
            say_killed(seen)

    def _say_findings(self, check: MemoryComparison, forged: tuple[ForgedTime, ...]) -> None:
        if self.findings.problem:
            event(logging.INFO, "the process watch sees the GPUs' processes again")
        self.findings = WatchFindings(
            policy=self.policy,
            bypassing=tuple(check.bypassing),
            foreign=tuple(check.foreign),
            damaged=tuple(check.damaged),
            charged=tuple(
                ChargedMemory(uuid, each, check.watched[each].allocation.owner, size)
                for (each, uuid), size in check.charges.items()
                if size
            ),
            forged=forged,
            ended=self._ended,
        )

    def _say_problem(self, problem: str) -> None:
        if problem != self.findings.problem:  # once, not at every check
            event(
                logging.WARNING,
                "the process watch cannot see the GPUs' processes",
                notice=node_notice(EventReason.PROCESS_WATCH_UNAVAILABLE, problem),
                reason=problem,
            )
        self.findings = WatchFindings(problem, self.policy, ended=self._ended)
