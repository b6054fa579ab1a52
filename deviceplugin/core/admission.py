"""What the kubelet asks of an admission: which units, and give them.

Order of an `Allocate`: decide (pure, `pairing`), make the container's files, save the change,
enter the book, answer. Whatever fails leaves the book as it was; files of an allocation that never
reached the disk are swept at the next start.

Which container asks is not said; podresources is asked in every `prefer` to know it
(`pod_correlation`), and the pods of the node tell what it asks for besides (`pod_knowledge`). The
kubelet's calls come in threads of gRPC; they meet in `NodeState`'s lock.
"""

import logging
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager, suppress
from dataclasses import replace

from deviceplugin.log import event
from deviceplugin.model.allocations import Allocation
from deviceplugin.model.units import Half, gpu_of, resource_name
from deviceplugin.policy.devices import mps_replicas
from deviceplugin.policy.devices.device_choice import Closest
from deviceplugin.policy.devices.device_resources import DeviceResource
from deviceplugin.policy.devices.layout import Layout
from deviceplugin.policy.pairing import pairing, podresources_listing
from deviceplugin.policy.pairing.bound_pods import Asked
from deviceplugin.policy.pairing.pod_correlation import PodCorrelation
from deviceplugin.policy.pairing.preference import UnitRequest, prefer
from deviceplugin.store.slice_files import Answer
from libvgpu.errors import AllocationRefused, VgpuError
from libvgpu.limits import Family

from .parts import Allocations, Sources
from .pod_knowledge import PodKnowledge, tell_where_not_honoured
from .podresources_sync import PodResourcesSync


class Admission:
    """Answers GetPreferredAllocation and Allocate."""

    def __init__(
        self,
        kept: Allocations,
        sync: PodResourcesSync,
        sources: Sources,
        closest: Closest,
    ) -> None:
        """Has answered nothing yet.

        Args:
            sources: of the time.
            closest: which of several GPUs lie close together.
        """
        self._state, self._store, self._enforcement = kept.state, kept.store, kept.enforcement
        self._sync = sync
        self._clock, self._wall_clock, self._new_id = (
            sources.clock,
            sources.wall_clock,
            sources.new_id,
        )
        self._closest = closest
        self._who = PodCorrelation()
        self._pods = PodKnowledge(sources.pods, sources.clock)

    @property
    def _layout(self) -> Layout:
        return self._state.layout

    def prefer(
        self,
        family: Family,
        half: Half,
        available: Sequence[str],
        must_include: Sequence[str],
        count: int,
    ) -> list[str]:
        """Answers GetPreferredAllocation (see `preference`).

        How long podresources lets us wait is not the container's doing: a half that waited for this
        one when the call came waits on.
        """
        asked_at = self._clock()
        offered = frozenset(available).difference(must_include)
        listing = self._sync.look(offered, is_asked=True)
        kin = self._know_who_asks(family, half, listing, asked_at)
        again = self._sync.look_again(offered)
        if again is not None:
            listing, kin = again, self._know_who_asks(family, half, again, asked_at)
        asked = Asked(self._layout.resource_domain, family, half, count)
        with self._state.lock:
            partner = pairing.open_allocation(self._state.book, family, half, asked_at)
        known = self._pods.of(asked, listing, is_patient=partner is None)
        expected = known.expected()
        with self._state.lock:
            partner = pairing.open_allocation(self._state.book, family, half, asked_at)
            if partner is not None and known.is_of_another(partner):
                self._state.book.put(replace(partner, settled=True))
            elif partner is not None:
                self._state.book.put(replace(partner, changed_s=self._clock()))
                expected = None
            with self._settling_on_refusal(family, half):
                chosen = self._choose(
                    UnitRequest(
                        family, half, available, must_include, count, kin=kin, expected=expected
                    )
                )
        tell_where_not_honoured(expected, chosen, asked)
        self._sync.expect_allocate()
        return chosen

    def _choose(self, request: UnitRequest) -> list[str]:
        """Decides twice where units have come back that the kubelet may not know of."""

        def choose(returned: Set[str] = frozenset()) -> list[str]:
            asked = replace(request, returned=returned)
            return prefer(self._layout, self._state.book, asked, self._clock(), self._closest)

        returned = self._state.returned()
        hopeful = choose()
        if not returned:
            return hopeful
        careful = None
        with suppress(AllocationRefused):
            careful = choose(returned)
        if careful is not None and set(map(gpu_of, careful)) == set(map(gpu_of, hopeful)):
            return careful
        self._state.wait_until_known()
        return choose()

    def _know_who_asks(
        self,
        family: Family,
        half: Half,
        listing: Sequence[podresources_listing.Listed] | None,
        asked_at: float,
    ) -> list[Allocation]:
        with self._state.lock:
            return self._who.prefers(
                self._state.book, family, half, listing, asked_at, self._sync.allocations_done
            )

    def allocate(self, family: Family, half: Half, units: Sequence[str]) -> Answer:
        """Answers Allocate for one container (see `pairing.allocate`)."""
        with (
            self._sync.held_off(units),
            self._state.lock,
            self._settling_on_refusal(family, half),
        ):
            book, new_id = self._state.book, self._new_id()
            for settled in pairing.settle_before(book, family, half):
                book.put(settled)
            allocation = pairing.allocate(
                self._layout, book, family, half, units, self._clock(), new_id
            )
            name = resource_name(self._layout.resource_domain, family, half)
            answer = self._give(allocation, half, name, units)
            allocation = book.allocations[allocation.allocation_id]
            self._who.opened(book, allocation, family, half, self._sync.allocations_done)
            shared = self._layout.find(allocation.uuid)
            if shared is not None and shared.drains:
                # It began before the GPU did, so these units may be withdrawn already.
                self._state.announce()
            return answer

    def allocate_replica(self, resource: DeviceResource, device_ids: Sequence[str]) -> Answer:
        """Answers Allocate for a container with a replica of a GPU that is under MPS."""
        with self._sync.held_off(device_ids), self._state.lock:
            allocation = mps_replicas.replica_allocation(
                self._layout, resource, device_ids, self._clock(), self._new_id()
            )
            return self._give(allocation, None, resource.name, device_ids)

    def _give(
        self, allocation: Allocation, half: Half | None, resource: str, units: Sequence[str]
    ) -> Answer:
        """Makes the files of an allocation, saves and enters it, and returns the answer."""
        book = self._state.book
        shared = self._layout.find(allocation.uuid)
        allocation = replace(
            allocation,
            changed_at=self._wall_clock(),
            shim_build=allocation.shim_build or self._store.build,
            compute=shared.compute if shared else None,
        )
        limits = self._enforcement.resolved(allocation).limits
        before = book.allocations.get(allocation.allocation_id)
        try:
            self._store.put(allocation, limits)
            if allocation != before:
                self._state.commit([allocation])
        except VgpuError as error:
            if before is None:
                self._store.remove(allocation.allocation_id)
                self._enforcement.forget([allocation.allocation_id])
            else:
                self._enforcement.write(before)
            raise AllocationRefused(f"{resource}: {error.message}") from error
        event(
            logging.INFO,
            "allocated",
            resource=resource.rpartition("/")[2],
            units=len(units),
            gpu=" ".join(allocation.uuids),
            allocation=allocation.allocation_id,
            whole=allocation.whole,
        )
        return self._store.answer(allocation, half, limits)

    @contextmanager
    def _settling_on_refusal(self, family: Family, half: Half) -> Iterator[None]:
        """A refusal fails the pod, so what waited for this half waits no longer."""
        try:
            yield
        except AllocationRefused:
            partner = pairing.open_allocation(self._state.book, family, half, self._clock())
            if partner is not None:
                self._state.book.put(replace(partner, settled=True, refused=True))
            raise
