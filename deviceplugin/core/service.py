"""The agent's core as a whole: what is offered of the state under one lock, and what changes it.

`SliceService` puts the core together. What the kubelet asks for a container is answered by its
`admission`; here is the list of units, and what config, operators, podresources, NVML and the
process watch change. Each method takes the lock of `NodeState` for as long as it needs it.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from deviceplugin.log import event
from deviceplugin.model.agent_config import AgentConfig
from deviceplugin.model.allocations import Allocation, Owner
from deviceplugin.model.gpus import Gpu
from deviceplugin.model.limit_rules import LimitRule
from deviceplugin.model.notices import EventReason, node_notice
from deviceplugin.model.units import MOST_UNITS_PER_RESOURCE, Half
from deviceplugin.policy.devices import offer
from deviceplugin.policy.devices.device_choice import Closest, first_by_index
from deviceplugin.policy.devices.device_resources import is_well, place_of
from deviceplugin.policy.devices.layout import Layout
from deviceplugin.policy.limits.learnt_sizes import MeasuredSizes, kind_of
from deviceplugin.policy.limits.resolver import ResolvedLimits
from deviceplugin.store.learnt_sizes_file import KeptSizes
from deviceplugin.store.node_state import NodeState
from deviceplugin.store.slice_files import SliceStore
from deviceplugin.watch.comparison import Charges, ComparedAllocation
from libvgpu.limits import ContainerLimits, Family

from .admission import Admission
from .container_start import ContainerStart, WaitForMps
from .device_admission import DeviceAdmission
from .enforcement import Enforcement
from .parts import Allocations, Sources
from .podresources_sync import PodResourcesSync
from .startup import take_over

#: At which call of `reconcile` podresources is asked while all is well, and without allocations.
_CALM_EVERY, _EMPTY_EVERY = 4, 16


@dataclass(frozen=True, slots=True)
class Unit:
    """One unit as the kubelet is told of it."""

    name: str
    healthy: bool
    numa_node: int | None


class SliceService:
    """The core as a whole: what is offered, and what changes it.

    Attributes:
        state: what is kept under the one lock.
        enforcement: the limits in force, and what `vgpuctl set` changes of them.
        admission: answers what the kubelet asks when it admits a container with a fraction.
        starts: answers whether it may start.
        devices: both for a container with whole devices or replicas.
    """

    def __init__(
        self,
        state: NodeState,
        store: SliceStore,
        rules: Sequence[LimitRule],
        sources: Sources,
        wait_for_mps: WaitForMps = lambda uuids, under_mps, within_s: None,
        closest: Closest = first_by_index,
    ) -> None:
        """Takes over what the checkpoint says, and from the kubelet's what it lacks.

        Args:
            state: empty, with the checkpoint to load and what the config wants.
            rules: of the config.
            wait_for_mps: waits until GPUs are as a container needs them.
            closest: which of several GPUs lie close together.
        """
        self.state, self._store = state, store
        self._sizes = KeptSizes(store.state_dir)
        self.enforcement = Enforcement(state, store, rules, sources.labels, self._sizes.learnt)
        kept = Allocations(state, store, self.enforcement)
        self._sync = PodResourcesSync(kept, sources)
        self.admission = Admission(kept, self._sync, sources, closest)
        self.starts = ContainerStart(kept, self._sync, sources, wait_for_mps)
        self.devices = DeviceAdmission(
            state, self._sync, self.admission, self.starts, store.forms, closest, sources.clock
        )
        self._skipped = 0
        take_over(state, store, sources.read_checkpoint(), sources.clock())
        with state.lock:
            state.share(state.wanted)
            self.enforcement.follow_rules(list(state.book.allocations.values()))
            state.announce()  # what was taken over, before anybody has a list

    # ---- what is advertised ------------------------------------------------------------------

    @property
    def layout(self) -> Layout:
        """How the GPUs are shared now; replaced whole when config or slices change it."""
        return self.state.layout

    def units(self, family: Family, half: Half) -> tuple[int, list[Unit]]:
        """Returns the current revision and every unit of one resource."""
        with self.state.lock:
            blocked, unhealthy = offer.withdrawn(self.layout, self.state.book), self.state.unhealthy
            units = offer.advertised(self.layout, family, half)
            if len(units) > MOST_UNITS_PER_RESOURCE:  # small units of an earlier config, too
                units = [
                    (n, shared) for n, shared in units if not shared.drains or n not in blocked
                ]
            return self.state.revision, [
                Unit(
                    name,
                    name not in blocked and is_well(shared.gpu, unhealthy),
                    shared.gpu.numa_node,
                )
                for name, shared in units
            ]

    def device_units(self, resource: str) -> tuple[int, list[Unit]]:
        """Returns the current revision and every device or replica of one resource."""
        with self.state.lock:
            found = self.layout.resource(resource)
            unhealthy = self.state.unhealthy
            return self.state.revision, [
                Unit(each, is_well(device.gpu, unhealthy), device.gpu.numa_node)
                for device in (found.devices if found is not None else ())
                for each in device.ids
            ]

    # ---- what changes it ---------------------------------------------------------------------

    def set_unhealthy(self, unhealthy: Mapping[str, str]) -> None:
        """Offers no unit of these GPUs, held ones included, and those of all others again.

        Args:
            unhealthy: why each is, by UUID.
        """
        with self.state.lock:
            before, self.state.unhealthy = self.state.unhealthy, unhealthy
            self.state.announce()
        for gpu in sorted(unhealthy.keys() - before.keys()):
            event(
                logging.ERROR,
                "GPU unhealthy, its units are withdrawn",
                notice=node_notice(
                    EventReason.GPU_UNHEALTHY,
                    f"GPU {gpu} is unhealthy, so its units are withdrawn: {unhealthy[gpu]}",
                ),
                gpu=gpu,
                reason=unhealthy[gpu],
            )
        for gpu in sorted(before.keys() - unhealthy.keys()):
            if gpu in self.gpu_uuids():  # else nobody asks any more
                event(
                    logging.INFO,
                    "GPU healthy again, its units are offered",
                    notice=node_notice(
                        EventReason.GPU_HEALTHY,
                        f"GPU {gpu} is healthy again, and its units are offered",
                    ),
                    gpu=gpu,
                )

    def reconcile(self) -> None:
        """Asks podresources whose the allocations are and frees those that have ended.

        Called every second; while nobody is unknown or missing it asks at every fourth call, since
        the listing of a full node is most of what an idle agent does, and so it does while
        podresources does not answer, since that may take a second. Without any allocation it looks
        now and then, to notice that.
        """
        health = self._sync.health
        with self.state.lock:
            allocations, held = self.state.book.allocations.values(), self.state.held
            is_calm = all(h.owner and h.settled and not h.missing_since for h in allocations)
            is_calm = is_calm and all(each.owner for each in held.values())
            every = _CALM_EVERY if is_calm or health.is_silent else 1
            if not (allocations or held) and not health.is_failing:
                every = _EMPTY_EVERY
            self._skipped = (self._skipped + 1) % every
            if self._skipped:
                return
        self._sync.look()

    @property
    def podresources_problem(self) -> str | None:
        """Why units come back late or never; None while podresources answers."""
        return self._sync.health.problem

    def follow_config(self, config: AgentConfig, wanted: Layout) -> None:
        """Puts a new config into force: its ``limits`` in all containers, its sharing as slices
        allow.

        Args:
            wanted: what its sharing means for the GPUs of this node.
        """
        with self.state.lock:
            self.enforcement.rules = config.rules
            self.devices.whole = config.whole
            self.state.share(wanted)
            try:
                self.enforcement.follow_rules(list(self.state.book.allocations.values()))
            finally:
                self.state.announce()

    def follow_gpus(self, gpus: tuple[Gpu, ...], wanted: Layout) -> None:
        """Goes by other GPUs of the node.

        Args:
            gpus: all that count, those that are gone and that containers hold included.
            wanted: what the config says of those that are here.
        """
        with self.state.lock:
            self._store.follow_gpus(gpus)
            self.state.gpus = gpus
            self.state.share(wanted)
            try:
                self.enforcement.follow_rules(list(self.state.book.allocations.values()))
            finally:
                self.state.announce()

    def follow_labels(self) -> None:
        """Puts the rules into force again, since labels of pods have changed."""
        with self.state.lock:
            self.enforcement.follow_rules(list(self.state.book.allocations.values()))

    def owners_for_labels(self) -> dict[str, Owner]:
        """Returns whose each allocation is, by id; nothing while no rule asks for labels."""
        with self.state.lock:
            if not any(rule.needs_labels for rule in self.enforcement.rules):
                return {}
            allocations = self.state.book.allocations.values()
            return {h.allocation_id: h.owner for h in allocations if h.owner is not None}

    def allocations(self) -> list[tuple[Allocation, ContainerLimits]]:
        """Returns all allocations with their limits in force."""
        with self.state.lock:
            allocations = self.state.book.allocations.values()
            return [(h, self.enforcement.resolved(h).limits) for h in allocations]

    def resolved(self) -> list[tuple[Allocation, ResolvedLimits]]:
        """Returns all allocations with what holds for them and where it comes from."""
        with self.state.lock:
            allocations = self.state.book.allocations.values()
            return [(h, self.enforcement.resolved(h)) for h in allocations]

    def shared_gpus(self) -> Sequence[str]:
        """Returns the UUIDs of the shared GPUs."""
        return [shared.gpu.uuid for shared in self.layout.gpus]

    def gpu_uuids(self) -> list[str]:
        """Returns the UUIDs of the GPUs and MIG devices that are given in any way, in order."""
        layout = self.layout
        whole = (device.gpu for each in layout.resources for device in each.devices)
        given = sorted((*(shared.gpu for shared in layout.gpus), *whole), key=place_of)
        return [gpu.uuid for gpu in given]

    def watched(self) -> list[ComparedAllocation]:
        """Returns all allocations with their files, what they asked for and limits in force."""
        with self.state.lock:
            return [
                ComparedAllocation(
                    h,
                    self._store.directory(h.allocation_id),
                    self.enforcement.resolved(h).asked,
                    self.enforcement.resolved(h).limits,
                )
                for h in self.state.book.allocations.values()
            ]

    def set_unaccounted(self, charges: Charges) -> None:
        """See `Enforcement.set_unaccounted`."""
        with self.state.lock:
            self.enforcement.set_unaccounted(charges)

    def note_sizes(self, found: Sequence[MeasuredSizes]) -> None:
        """Has the containers that come know what those that are there measured."""
        with self.state.lock:
            shared = {each.gpu.uuid: each for each in self.layout.gpus}
            self._sizes.note(
                (kind_of(on.gpu, on.served_by_mps), each)
                for each in found
                if (on := shared.get(each.uuid)) is not None
            )
