"""May a container start: the kubelet's PreStartContainer, the last gate before its processes.

The kubelet waits 30 s and tries a start again that was refused. So what passes within that is
waited for rather than refused: a listing (`look_patiently`), memory that an ended container still
has on the book, the GPU's MPS daemon. The lock is taken for each look, never across a wait.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

from deviceplugin.log import event
from deviceplugin.model.allocations import Allocation
from deviceplugin.model.notices import EventReason, container_notice
from deviceplugin.model.units import Half, resource_name
from deviceplugin.policy.devices import exclusive_gpu
from deviceplugin.policy.pairing import implicit_units, podresources_listing
from deviceplugin.policy.pairing.implicit_units import MemoryNotFreeYet
from deviceplugin.policy.pairing.lone_halves import check_not_lone
from deviceplugin.recovery import confirmation, kubelet_records
from deviceplugin.recovery.kubelet_checkpoint import CheckpointReading, KubeletEntry
from libvgpu.errors import AllocationRefused, RegionBusyError, VgpuError
from libvgpu.limits import Family

from .parts import Allocations, Sources
from .podresources_sync import PATIENCE_S, PodResourcesSync

#: Returns once the MPS daemons of GPUs answer (true), or once the GPUs are free of MPS (false), and
#: a container would see them; raises VgpuError if that does not come within so many seconds.
WaitForMps = Callable[[Sequence[str], bool, float], None]

#: Why a start is refused that no record confirms.
NO_ANSWER = (
    "podresources of the kubelet gave no answer in time, so nobody says whose container this is: "
    "{}; the kubelet tries it again"
)
#: What of the kubelet's 30 s is used at most, so that a refusal still arrives with its sentence.
_ANSWER_WITHIN_S = 28.0
#: An allocation that podresources does not show counts as ended within 10 s.
MEMORY_WAIT_S = 12.0
_MEMORY_PAUSE_S = 0.25


class ContainerStart:
    """Answers PreStartContainer."""

    def __init__(
        self,
        kept: Allocations,
        sync: PodResourcesSync,
        sources: Sources,
        wait_for_mps: WaitForMps,
    ) -> None:
        """Has answered nothing yet.

        Args:
            sources: of the time.
            wait_for_mps: waits until the GPUs are as a container needs them.
        """
        self._state, self._store, self._enforcement = kept.state, kept.store, kept.enforcement
        self._sync, self._wait_for_mps = sync, wait_for_mps
        self._clock, self._sleep = sources.clock, sources.sleep

    def pre_start(self, family: Family, half: Half, units: Sequence[str]) -> None:
        """Answers PreStartContainer: the last gate before the container's processes start.

        Raises:
            VgpuError: in one sentence, why it must not start.
        """
        domain = self._state.layout.resource_domain
        self._wait_to_start(resource_name(domain, family, half), half, units)

    def pre_start_replica(self, resource: str, device_ids: Sequence[str]) -> None:
        """The same for a container with a replica of a GPU that is under MPS.

        Raises:
            VgpuError: in one sentence, why it must not start.
        """
        self._wait_to_start(resource, None, device_ids)

    def wait_until_ready(self, uuids: Sequence[str]) -> None:
        """Returns once GPUs that a container has whole are as if there were no MPS.

        Raises:
            VgpuError: they are not in time, or the container would start without them.
        """
        self._wait_for_mps(uuids, False, _ANSWER_WITHIN_S - PATIENCE_S)

    def _wait_to_start(self, resource: str, half: Half | None, units: Sequence[str]) -> None:
        began_s = self._clock()
        while True:
            listing, record = self._sync.look_patiently(units), self._sync.record()
            try:
                done = self._start(resource, half, units, listing, record)
                is_client = done.served_by_mps and not exclusive_gpu.is_exclusive(done)
                left_s = _ANSWER_WITHIN_S - (self._clock() - began_s)
                self._wait_for_mps(done.uuids, is_client, left_s)
                break
            except MemoryNotFreeYet as error:
                if self._clock() - began_s >= MEMORY_WAIT_S:
                    self._tell_refused(error, listing, units)
                    raise
            except VgpuError as error:
                self._tell_refused(error, listing, units)
                raise
            self._sleep(_MEMORY_PAUSE_S)
        event(
            logging.INFO,
            "container may start",
            allocation=done.allocation_id,
            owner=done.owner or "unknown",
            resource=resource.rpartition("/")[2],
        )

    @staticmethod
    def _tell_refused(
        error: VgpuError,
        listing: Sequence[podresources_listing.Listed] | None,
        units: Sequence[str],
    ) -> None:
        owner = next((c.owner for c in listing or () if c.given.issuperset(units)), None)
        event(
            logging.WARNING,
            "container start refused",
            notice=container_notice(EventReason.CONTAINER_START_REFUSED, error.message, owner),
            owner=owner or "unknown",
            reason=error.message,
        )

    def _start(
        self,
        resource: str,
        half: Half | None,
        units: Sequence[str],
        listing: Sequence[podresources_listing.Listed] | None,
        record: CheckpointReading,
    ) -> Allocation:
        wanted = frozenset(units)
        with self._state.lock:
            book = self._state.book
            candidates = {h.allocation_id: h for u in units for h in book.holders(u)}
            # Two where a container was given just what an init container of its pod had.
            allocations = [
                h
                for h in candidates.values()
                if set(h.replicas if half is None else h.of(half)) == wanted
            ]
            if not allocations:
                raise AllocationRefused(
                    f"the agent has no record of these {len(units)} units of {resource}; "
                    "delete the pod, so that it is admitted again"
                )
            if listing is None:
                doubts = [
                    confirmation.unconfirmed(record, h.allocation_id, wanted) for h in allocations
                ]
                if None not in doubts:
                    raise AllocationRefused(NO_ANSWER.format(doubts[-1]))
            return [
                self._let_start(allocation, listing, record.entries) for allocation in allocations
            ][-1]

    def _let_start(
        self,
        allocation: Allocation,
        listing: Sequence[podresources_listing.Listed] | None,
        entries: Sequence[KubeletEntry],
    ) -> Allocation:
        problem = kubelet_records.conflict(entries, allocation.allocation_id)
        if listing is not None:
            problem = (
                podresources_listing.conflict(self._state.book, allocation, listing) or problem
            )
        if problem is not None:
            raise AllocationRefused(problem)
        check_not_lone(self._state.layout, allocation)
        shown = frozenset[str]().union(*(c.given for c in listing)) if listing is not None else None
        done = implicit_units.complete_start(
            self._state.layout, self._state.book, allocation, shown
        )
        done = replace(done, started=True)
        if done.served_by_mps:
            self._state.last_started.update(dict.fromkeys(done.uuids, done.allocation_id))
        try:
            self._store.put_back(done, self._enforcement.resolved(done).limits)
        except RegionBusyError as error:  # the limits of before hold until then
            self._enforcement.note_late(done, error.message)
        if done != allocation:
            self._state.commit([done])
            if done.implicit_units != allocation.implicit_units:
                self._state.announce()
        return done
