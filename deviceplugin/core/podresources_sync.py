"""When podresources is asked, and what is done about its answer.

Never while an `Allocate` of ours is in flight: a listing may make the kubelet forget the units of
that call (kubernetes#137534). The kubelet has chosen them before the call reaches us, right after
GetPreferredAllocation was answered, and has them on record only after it has our answer: so nobody
lists from the answer to GetPreferredAllocation on until a moment after the `Allocate`, or until the
kubelet's next call shows that it has gone on; and the answer to GetPreferredAllocation waits for a
listing that is under way. A listing that an `Allocate` overtook all the same, since some come
without being asked for, is thrown away. It is asked outside the lock, since the kubelet may call us
meanwhile.

Where it has not answered for a while (`podresources_health`), the kubelet's checkpoint says which
allocations have ended (`recorded_allocations`).
"""

import logging
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from deviceplugin import runtime
from deviceplugin.log import LOGGER, event
from deviceplugin.model.held_devices import HeldDevice, after_record
from deviceplugin.model.units import Half
from deviceplugin.policy.pairing import podresources_listing, recorded_allocations
from deviceplugin.recovery.kubelet_checkpoint import CheckpointReading
from deviceplugin.recovery.kubelet_records import devices_on_record
from libvgpu.errors import VgpuError

from . import kubelet_record
from .parts import Allocations, Sources
from .podresources_health import PodResourcesHealth

#: How long a container's start waits for a listing; the kubelet waits 30 s for the start.
PATIENCE_S = 5.0
_PAUSE_S = 0.005
_FAILED_PAUSE_S = 0.1
#: A container's halves start one right after the other: the second goes by what the first saw.
_FRESH_S = 0.05
#: An `Allocate` follows the answer to GetPreferredAllocation at once or never; its own answer is on
#: the kubelet's record within milliseconds.
_EXPECTED_S = 0.1


class PodResourcesSync:
    """podresources, seen through the book."""

    def __init__(self, kept: Allocations, sources: Sources) -> None:
        """Has asked nobody yet."""
        self._state, self._store, self._enforcement = kept.state, kept.store, kept.enforcement
        self._sources, self._clock, self._sleep = sources, sources.clock, sources.sleep
        self.health = PodResourcesHealth(sources.clock)
        self._allocating = 0
        self._expected_until_s = 0.0
        self._given: deque[frozenset[str]] = deque(maxlen=len(Half))  # of the latest calls
        self._listing = runtime.lock()  # taken before the state's
        self.allocations_done = 0
        self._latest: tuple[float, int, Sequence[podresources_listing.Listed]] | None = None

    @contextmanager
    def held_off(self, units: Iterable[str] = ()) -> Iterator[None]:
        """Nobody lists within this, nor a moment after; it surrounds every `Allocate`."""
        with self._state.lock:
            self._allocating += 1
        try:
            yield
        finally:
            with self._state.lock:
                self._allocating -= 1
                self.allocations_done += 1
                self._expected_until_s = self._clock() + _EXPECTED_S
                self._given.append(frozenset(units))

    def expect_allocate(self) -> None:
        """Nobody lists until the `Allocate` has come that follows an answer given now."""
        with self._listing, self._state.lock:
            self._expected_until_s = self._clock() + _EXPECTED_S

    def look(
        self, offered: frozenset[str] = frozenset(), is_asked: bool = False
    ) -> Sequence[podresources_listing.Listed] | None:
        """Lists podresources and acts on it; None where that could not or must not be done.

        Args:
            offered: units that the kubelet offers right now, so believes free.
            is_asked: within GetPreferredAllocation, when no `Allocate` can be on its way.
        """
        with self._listing:
            with self._state.lock:
                if self._must_wait() and not (is_asked and not self._allocating):
                    return None
                done = self.allocations_done
            if is_asked and self.health.is_silent:  # an admission is not held up for nothing
                self._go_by_record(done, offered)
                return None
            try:
                listing = self._sources.list_podresources()
            except VgpuError as error:
                LOGGER.debug("podresources: %s", error.message)
                self.health.failed(error.message, lambda: self.record().problem)
                if self.health.is_silent:
                    self._go_by_record(done, offered)
                return None
            self.health.answered()
            with self._state.lock:
                if self._allocating or self.allocations_done != done:
                    return None
                self._act_on(listing, offered)
                self._latest = self._clock(), done, listing
                return listing

    def _must_wait(self) -> bool:
        return self._allocating > 0 or self._clock() < self._expected_until_s

    def look_patiently(self, units: Iterable[str]) -> Sequence[podresources_listing.Listed] | None:
        """Like `look`, but tries again for `PATIENCE_S`: when an `Allocate` of another pod came
        between, and when podresources does not answer, unless it has been silent for long.

        The kubelet answers 100 listings a second, so one of a moment ago counts where it shows the
        container already and nothing was allocated since.

        Args:
            units: what the container has of one resource.
        """
        wanted = frozenset(units)
        with self._state.lock:
            if wanted in self._given and not self._allocating:
                self._expected_until_s = 0.0  # the latest container starts: it is on record
        give_up_s = self._clock() + PATIENCE_S
        while True:
            with self._state.lock:
                done = self.allocations_done
                if self._latest is not None and not self._allocating:
                    at_s, then, latest = self._latest
                    is_fresh = then == done and self._clock() - at_s < _FRESH_S
                    if is_fresh and any(wanted <= each.given for each in latest):
                        return latest
            listing = self.look()
            if listing is not None:
                return listing
            with self._state.lock:
                overtaken = self._must_wait() or self.allocations_done != done
            has_no_answer = self.health.is_silent and not overtaken
            if has_no_answer or self._clock() >= give_up_s:
                return None
            self._sleep(_PAUSE_S if overtaken else _FAILED_PAUSE_S)

    def look_again(self, offered: frozenset[str]) -> Sequence[podresources_listing.Listed] | None:
        """Asks a second time within GetPreferredAllocation, where the first listing left a doubt.

        An allocation that was never listed although its units are offered may be one whose answer
        the kubelet has not recorded yet.
        """
        with self._state.lock:
            book = self._state.book
            missing = [h for h in book.allocations.values() if h.missing_since and h.owner is None]
            doubtful = any(
                book.holder(unit) is h for h in missing for unit in offered.intersection(h.units)
            )
        if not doubtful:
            return None
        self._sleep(_PAUSE_S)
        return self.look(offered, is_asked=True)

    def record(self) -> CheckpointReading:
        """Returns what the kubelet's checkpoint says now."""
        return self._sources.read_checkpoint()

    def _go_by_record(self, done: int, offered: frozenset[str]) -> None:
        """Frees by the kubelet's checkpoint what has ended, where podresources does not tell."""
        reading = self.record()
        if reading.problem is not None:
            return
        recorded = kubelet_record.recorded_ids(reading)
        with self._state.lock:
            if self._allocating or self.allocations_done != done:
                return
            if reading.pods is not None:  # else pods that have ended are among them
                devices = devices_on_record(reading, self._state.layout.resource_domain)
                self._state.hold(after_record(self._state.held, devices, self._clock()))
            self._enter(
                recorded_allocations.examine(
                    self._state.book,
                    recorded,
                    self._clock(),
                    self._store.running,
                    offered,
                )
            )

    def _note_devices(self, listing: Sequence[podresources_listing.Listed]) -> None:
        """Notes who has devices whole or as replicas.

        Plain init containers are not listed; the kubelet's checkpoint has them, and also pods that
        have ended. Without the kubelet's directories of pods, it counts for what was never listed.
        """
        recorded = [
            HeldDevice(resource, each, container.owner)
            for container in listing
            for resource, each in container.devices
        ]
        missing = dict(self._state.held)
        for each in recorded:
            missing.pop((each.resource, each.device_id), None)
        if missing:
            reading = self._sources.read_checkpoint()
            for each in devices_on_record(reading, self._state.layout.resource_domain):
                held = missing.get((each.resource, each.device_id))
                if held is not None and (reading.pods is not None or held.owner is None):
                    recorded.append(each)
        self._state.hold(after_record(self._state.held, recorded, self._clock()))

    def _act_on(
        self, listing: Sequence[podresources_listing.Listed], offered: frozenset[str]
    ) -> None:
        self._note_devices(listing)
        found = podresources_listing.examine(
            self._state.book,
            listing,
            self._clock(),
            self._store.running,
            offered,
            kubelet_record.recorder(self._sources.read_checkpoint, self._state.book),
            self._sources.node,
        )
        self._enter(found)

    def _enter(self, found: podresources_listing.ListingFindings) -> None:
        try:
            if found.ended or found.identified:
                self._state.commit(found.changed, [h.allocation_id for h in found.ended])
        except VgpuError as error:  # nothing is freed that the disk still holds
            event(
                logging.ERROR,
                "what the kubelet shows cannot be saved",
                reason=error.message,
            )
            return
        for allocation in found.changed:  # when one was missed last need not survive us
            self._state.book.put(allocation)
        for allocation in found.ended:
            self._store.remove(allocation.allocation_id)
            event(
                logging.INFO,
                "freed: its container has ended",
                gpu=" ".join(allocation.uuids),
                allocation=allocation.allocation_id,
                owner=allocation.owner or "unknown",
                core=len(allocation.core),
                memory=len(allocation.memory),
            )
        self._enforcement.forget(allocation.allocation_id for allocation in found.ended)
        self._enforcement.follow_rules(found.identified)
        if found.ended:
            self._state.announce()
