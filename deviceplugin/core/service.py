"""The agent's core: local state under one lock, what is offered of it, and who may change it; no
gRPC. What the kubelet asks of an admission is answered in `admission`.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from deviceplugin.config.loading import AgentConfig
from deviceplugin.log import event
from deviceplugin.model.allocations import Allocation, Owner
from deviceplugin.model.gpus import Gpu
from deviceplugin.model.notices import EventReason, node_notice
from deviceplugin.model.overrides import LimitChange, Override
from deviceplugin.model.units import Half
from deviceplugin.policy import exclusive_gpu, offer, pairing
from deviceplugin.policy.layout import MOST_UNITS_PER_RESOURCE, Layout
from deviceplugin.policy.placement import Closest
from deviceplugin.recovery.kubelet_checkpoint import CheckpointReading
from deviceplugin.store.checkpoint import Checkpoint
from deviceplugin.store.node_state import NodeState
from deviceplugin.store.slice_files import Answer, SliceStore
from deviceplugin.watch.comparison import Charges, ComparedAllocation
from libvgpu.limits import ContainerLimits, Family

from .admission import Admission
from .enforcement import Enforcement
from .podresources_sync import Lister, PodResourcesSync
from .startup import take_over


@dataclass(frozen=True, slots=True)
class Unit:
    """One unit as the kubelet is told of it."""

    name: str
    healthy: bool
    numa_node: int | None


class SliceService:
    """Everything the kubelet may ask, for both families."""

    def __init__(
        self,
        layout: Layout,
        config: AgentConfig,
        store: SliceStore,
        checkpoint: Checkpoint,
        lister: Lister,
        wait_for_mps: Callable[[Sequence[str], bool], None] = lambda uuids, under_mps: None,
        clock: Callable[[], float] = time.time,
        witness: Callable[[], CheckpointReading] = lambda: CheckpointReading(()),
        closest: Closest = pairing.first_by_index,
        labels: Callable[[str], Mapping[str, str] | None] = lambda allocation_id: None,
        gpus: tuple[Gpu, ...] | None = None,
    ) -> None:
        """Takes over what the checkpoint says, and from the kubelet's what it lacks.

        Args:
            layout: what the config wants; `layout` is what of it is in force.
            lister: lists podresources; raises VgpuError where it cannot.
            wait_for_mps: returns once the MPS daemons of GPUs answer, or once the GPUs are bare;
                raises VgpuError if that does not come.
            clock: seconds since the epoch.
            witness: reads the kubelet's checkpoint.
            closest: which of several GPUs lie close together.
            labels: tells the labels of an allocation's pod, None where nobody knows them.
            gpus: all of the node; those of ``layout`` where nobody says.
        """
        gpus = tuple(shared.gpu for shared in layout.gpus) if gpus is None else gpus
        self.state = NodeState(checkpoint, layout, gpus)
        self._store = store
        self._enforcement = Enforcement(self.state, store, config.rules)
        self._enforcement.labels = labels
        self._looks = PodResourcesSync(self.state, store, self._enforcement, lister, witness, clock)
        self.state.not_offered = lambda: (
            offer.withdrawn(self.layout, self.state.book),
            frozenset(self.state.unwell),
        )
        self._admission = Admission(
            self.state, store, self._enforcement, self._looks, wait_for_mps, clock, closest
        )
        self._skipped = 0
        take_over(self.state, store, gpus, witness())
        with self.state.lock:
            self.state.share(layout)
            self._enforcement.follow_rules(list(self.state.book.allocations.values()))
            self.state.announce()  # what was taken over, before anybody has a list

    # ---- what is advertised ------------------------------------------------------------------

    @property
    def layout(self) -> Layout:
        """How the GPUs are shared now; replaced whole when config or slices change it."""
        return self.state.layout

    def draining(self) -> Mapping[str, str]:
        """Returns what each GPU that drains waits for, in words, by UUID."""
        return self.state.draining

    def units(self, family: Family, half: Half) -> tuple[int, list[Unit]]:
        """Returns the current revision and every unit of one resource."""
        with self.state.lock:
            blocked, unwell = offer.withdrawn(self.layout, self.state.book), self.state.unwell
            units = offer.advertised(self.layout, family, half)
            if len(units) > MOST_UNITS_PER_RESOURCE:  # small units of an earlier config beside ours
                units = [
                    (n, shared) for n, shared in units if not shared.drains or n not in blocked
                ]
            return self.state.revision, [
                Unit(
                    name,
                    name not in blocked and shared.gpu.uuid not in unwell,
                    shared.gpu.numa_node,
                )
                for name, shared in units
            ]

    def wait_for_change(self, revision: int, timeout_s: float, stopped: Callable[[], bool]) -> bool:
        """See `NodeState.wait_for_change`."""
        return self.state.wait_for_change(revision, timeout_s, stopped)

    def wake(self) -> None:
        """See `NodeState.wake`."""
        self.state.wake()

    # ---- what the kubelet asks ---------------------------------------------------------------

    def prefer(
        self,
        family: Family,
        half: Half,
        available: Sequence[str],
        must_include: Sequence[str],
        count: int,
    ) -> list[str]:
        """See `Admission.prefer`."""
        return self._admission.prefer(family, half, available, must_include, count)

    def allocate(self, family: Family, half: Half, units: Sequence[str]) -> Answer:
        """See `Admission.allocate`."""
        return self._admission.allocate(family, half, units)

    def pre_start(self, family: Family, half: Half, units: Sequence[str]) -> None:
        """See `Admission.pre_start`."""
        self._admission.pre_start(family, half, units)

    # ---- what happens beside -----------------------------------------------------------------

    def set_unwell(self, unwell: Mapping[str, str]) -> None:
        """Offers no unit of these GPUs, held ones included, and those of all others again.

        Args:
            unwell: why each is not well, by UUID.
        """
        with self.state.lock:
            before, self.state.unwell = self.state.unwell, unwell
            self.state.announce()
        for gpu in sorted(unwell.keys() - before.keys()):
            event(
                logging.ERROR,
                "GPU unhealthy, its units are withdrawn",
                notice=node_notice(
                    EventReason.GPU_UNHEALTHY,
                    f"GPU {gpu} is unhealthy, so its units are withdrawn: {unwell[gpu]}",
                ),
                gpu=gpu,
                reason=unwell[gpu],
            )
        for gpu in sorted(before.keys() - unwell.keys()):
            if self.layout.find(gpu) is not None:  # else nobody asks any more
                event(
                    logging.INFO,
                    "GPU healthy again, its units are offered",
                    notice=node_notice(
                        EventReason.GPU_HEALTHY,
                        f"GPU {gpu} is healthy again, and its units are offered",
                    ),
                    gpu=gpu,
                )

    def mps_gpus(self) -> dict[str, bool]:
        """Returns the GPUs that are to be under MPS now, and whether containers have slices."""
        with self.state.lock:
            return exclusive_gpu.under_mps(
                self.layout, self.state.book, self._admission.last_started
            )

    def owners_on(self, uuid: str) -> list[Owner | None]:
        """Returns whose containers are on a GPU, None for one not yet known."""
        with self.state.lock:
            return [allocation.owner for allocation in self.state.book.on_gpu(uuid)]

    def unwell(self) -> Mapping[str, str]:
        """Returns why each GPU that is not well is not, by UUID."""
        return self.state.unwell

    def reconcile(self) -> None:
        """Asks podresources whose the allocations are and frees those that have ended.

        Called every second; while nobody is unknown or missing it asks at every fourth call, since
        the listing of a full node is most of what an idle agent does.
        """
        with self.state.lock:
            allocations = self.state.book.allocations.values()
            is_calm = all(h.owner and h.settled and not h.missing_since for h in allocations)
            self._skipped = (self._skipped + 1) % 4 if is_calm else 0
            if not allocations or self._skipped:
                return
        self._looks.look()

    def follow_config(self, config: AgentConfig, wanted: Layout) -> None:
        """Puts a new config into force: its ``limits`` in all containers, its sharing as slices
        allow.

        Args:
            wanted: what its sharing means for the GPUs of this node.
        """
        with self.state.lock:
            self._enforcement.rules = config.rules
            self.state.share(wanted)
            try:
                self._enforcement.follow_rules(list(self.state.book.allocations.values()))
            finally:
                self.state.announce()

    def follow_labels(self) -> None:
        """Puts the rules into force anew, since labels of pods have changed."""
        with self.state.lock:
            self._enforcement.follow_rules(list(self.state.book.allocations.values()))

    def owners_for_labels(self) -> dict[str, Owner]:
        """Returns whose each allocation is, by id; nothing while no rule asks for labels."""
        with self.state.lock:
            if not any(rule.needs_labels for rule in self._enforcement.rules):
                return {}
            allocations = self.state.book.allocations.values()
            return {h.allocation_id: h.owner for h in allocations if h.owner is not None}

    def set_override(self, allocation_id: str, override: Override) -> LimitChange:
        """See `Enforcement.set_override`."""
        with self.state.lock:
            return self._enforcement.set_override(allocation_id, override)

    def clear_override(self, allocation_id: str) -> LimitChange:
        """See `Enforcement.clear_override`."""
        with self.state.lock:
            return self._enforcement.clear_override(allocation_id)

    def allocations(self) -> list[tuple[Allocation, ContainerLimits]]:
        """Returns all allocations with their limits in force."""
        with self.state.lock:
            return [(h, self._enforcement.limits(h)) for h in self.state.book.allocations.values()]

    def watched(self) -> list[ComparedAllocation]:
        """Returns all allocations with their files, what they asked for and limits in force."""
        with self.state.lock:
            return [
                ComparedAllocation(
                    h,
                    self._store.directory(h.allocation_id),
                    self._enforcement.asked(h),
                    self._enforcement.limits(h),
                )
                for h in self.state.book.allocations.values()
            ]

    def set_unaccounted(self, charges: Charges) -> None:
        """See `Enforcement.set_unaccounted`."""
        with self.state.lock:
            self._enforcement.set_unaccounted(charges)
