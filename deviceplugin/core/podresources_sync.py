"""When podresources is asked, and what is done about its answer.

Never while an `Allocate` of ours is in flight: a listing may make the kubelet forget the units of
that call (kubernetes#137534). The kubelet has chosen them before the call reaches us, right after
GetPreferredAllocation was answered, and has them on record only after it has our answer: so nobody
lists from the answer to GetPreferredAllocation on until a moment after the `Allocate`, or until the
kubelet's next call shows that it has gone on; and the answer to GetPreferredAllocation waits for a
listing that is under way. A listing that an `Allocate` overtook all the same, since some come
without being asked for, is thrown away. It is asked outside the lock, since the kubelet may call us
meanwhile.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache

from deviceplugin.log import LOGGER, event
from deviceplugin.model.allocations import Allocation
from deviceplugin.model.held_devices import HeldDevice, after_record
from deviceplugin.model.units import Half
from deviceplugin.policy import podresources_listing
from deviceplugin.recovery.kubelet_checkpoint import KubeletEntry
from deviceplugin.recovery.kubelet_records import allocation_of, devices_on_record
from libvgpu.errors import VgpuError

from .parts import Allocations, Sources

_TRIES = 40
_PAUSE_S = 0.005
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
        self._sources = sources
        self._allocating = 0
        self._expected_until_s = 0.0
        self._given: deque[frozenset[str]] = deque(maxlen=len(Half))  # of the latest calls
        self._listing = threading.Lock()  # taken before the state's
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
                self._expected_until_s = time.monotonic() + _EXPECTED_S
                self._given.append(frozenset(units))

    def expect_allocate(self) -> None:
        """Nobody lists until the `Allocate` has come that follows an answer given now."""
        with self._listing, self._state.lock:
            self._expected_until_s = time.monotonic() + _EXPECTED_S

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
            try:
                listing = self._sources.list_podresources()
            except VgpuError as error:
                LOGGER.debug("podresources: %s", error.message)
                return None
            with self._state.lock:
                if self._allocating or self.allocations_done != done:
                    return None
                self._act_on(listing, offered)
                self._latest = time.monotonic(), done, listing
                return listing

    def _must_wait(self) -> bool:
        return self._allocating > 0 or time.monotonic() < self._expected_until_s

    def look_patiently(self, units: Iterable[str]) -> Sequence[podresources_listing.Listed] | None:
        """Like `look`, but tries again when an `Allocate` of another pod came between.

        The kubelet answers 100 listings a second, so one of a moment ago counts where it shows the
        container already and nothing was allocated since.

        Args:
            units: what the container has of one resource.
        """
        wanted = frozenset(units)
        with self._state.lock:
            if wanted in self._given and not self._allocating:
                self._expected_until_s = 0.0  # the latest container starts: it is on record
        for _ in range(_TRIES):
            with self._state.lock:
                done = self.allocations_done
                if self._latest is not None and not self._allocating:
                    at_s, then, latest = self._latest
                    is_fresh = then == done and time.monotonic() - at_s < _FRESH_S
                    if is_fresh and any(wanted <= each.units for each in latest):
                        return latest
            listing = self.look()
            with self._state.lock:
                overtaken = self._must_wait() or self.allocations_done != done
            if listing is not None or not overtaken:
                return listing
            time.sleep(_PAUSE_S)
        return None

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
        time.sleep(_PAUSE_S)
        return self.look(offered, is_asked=True)

    def recorded(self) -> Sequence[KubeletEntry]:
        """Returns what the kubelet's checkpoint says, nothing where it cannot be read."""
        return self._sources.read_checkpoint().entries

    def _recorder(self) -> Callable[[Allocation], bool]:
        """Returns what says whether the kubelet has an allocation on record whose pod is there.

        Its checkpoint keeps pods that have ended until it is next written. Without the kubelet's
        directories of pods, nothing speaks for an allocation that was listed before, and a pod of
        init containers is over when nothing else that it had is listed.
        """

        @cache  # read once a listing, and only if somebody asks
        def seen() -> tuple[frozenset[str] | None, list[tuple[str, str | None]]]:
            reading = self._sources.read_checkpoint()
            return reading.pods, [(each.pod_uid, allocation_of(each)) for each in reading.entries]

        def is_recorded(allocation: Allocation) -> bool:
            pods, recorded = seen()
            uids = {uid for uid, each in recorded if each == allocation.allocation_id}
            if pods is not None:
                return not uids.isdisjoint(pods)
            if allocation.owner is not None:
                return False
            others = {each for uid, each in recorded if uid in uids} - {allocation.allocation_id}
            held = (self._state.book.allocations.get(each or "") for each in others)
            return bool(uids) and (
                not others or any(h and h.owner and not h.missing_since for h in held)
            )

        return is_recorded

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
        self._state.hold(after_record(self._state.held, recorded, time.monotonic()))

    def _act_on(
        self, listing: Sequence[podresources_listing.Listed], offered: frozenset[str]
    ) -> None:
        self._note_devices(listing)
        found = podresources_listing.examine(
            self._state.book,
            listing,
            self._sources.clock(),
            self._store.running,
            offered,
            self._recorder(),
        )
        try:
            if found.ended or found.identified:
                self._state.commit(found.changed, [h.allocation_id for h in found.ended])
        except VgpuError as error:  # nothing is freed that the disk still holds
            event(logging.ERROR, "what podresources shows cannot be saved", reason=error.message)
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
