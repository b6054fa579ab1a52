"""A node of the agent's policy alone: its book, what the kubelet gives by chance, and no I/O.

`PolicyNode.admit` does with a pod what kubelet and agent do together, for GPUs that somebody chose.
Units that init containers pass on are taken at random, halves come in random order, and every
answer is the agent's own (`pairing`, `implicit_units`). Between containers the agent knows whose
turn it is, as it does while it follows the pods of its node.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from deviceplugin.config.fractional import LoneHalves, Placement
from deviceplugin.model.allocations import Allocation, AllocationBook, Owner
from deviceplugin.model.gpus import Gpu
from deviceplugin.model.pod_requests import ContainerKind, ContainerRequest, PodRequest
from deviceplugin.model.units import Half
from deviceplugin.policy import pairing
from deviceplugin.policy.implicit_units import complete_start
from deviceplugin.policy.layout import Layout, SharedGpu
from deviceplugin.policy.lone_halves import check_not_lone
from deviceplugin.policy.offer import unit_names
from deviceplugin.policy.published_inventory import NodeMoment, published_node
from deviceplugin.policy.published_slices import Holdings
from deviceplugin.scheduler.search.node_view import NodeView, view_of
from libvgpu.errors import AllocationRefused
from libvgpu.limits import ComputeMode, Family

DOMAIN = "nvidia.com"
UNIT_BYTES = 1 << 30


def shared(
    index: int,
    units: int,
    family: Family = Family.VGPU,
    lone_halves: bool = True,
    placement: Placement = Placement.BINPACK,
) -> SharedGpu:
    """A GPU of so many memory units."""
    return SharedGpu(
        Gpu(index, f"GPU-{index:08x}", "NVIDIA Test", units * UNIT_BYTES),
        family,
        UNIT_BYTES,
        ComputeMode.STRICT,
        placement,
        lone_halves=LoneHalves.ALLOW if lone_halves else LoneHalves.FORBID,
    )


@dataclass(repr=False)
class PolicyNode:
    """The node; `pods` are the allocations of each, by name."""

    gpus: Sequence[SharedGpu]
    book: AllocationBook = field(default_factory=AllocationBook)
    pods: dict[str, list[str]] = field(default_factory=dict)
    _ids: "count[int]" = field(default_factory=count)

    def __repr__(self) -> str:
        rooms = (
            f"{room.family.name.lower()} {room.core} core {room.memory}/{room.memory_units}"
            for room in self.view().gpus
        )
        return f"PolicyNode({', '.join(rooms)})"

    @property
    def layout(self) -> Layout:
        return Layout(DOMAIN, tuple(self.gpus))

    def copy(self) -> "PolicyNode":
        book = AllocationBook.of(self.book.allocations.values())
        return PolicyNode(self.gpus, book, {k: list(v) for k, v in self.pods.items()}, self._ids)

    def view(self) -> NodeView:
        """What is free, as the agent publishes it."""
        holdings = Holdings(tuple(self.book.allocations.values()), self.book.shared_units())
        return view_of("node", published_node(NodeMoment(self.layout, holdings)))

    def end(self, name: str) -> None:
        for each in self.pods.pop(name):
            self.book.drop(each)

    def admit(
        self, pod: PodRequest, chosen: Mapping[str, Sequence[str]], chance: random.Random
    ) -> None:
        """Gives a pod its units on the chosen GPUs, and starts its containers.

        Raises:
            AllocationRefused: as the agent says it.
        """
        reusable: dict[tuple[Family, Half], set[str]] = {}
        given: list[tuple[ContainerRequest, Allocation]] = []
        self.pods[pod.name] = []
        for container in pod.containers:
            for family in container.families(DOMAIN):
                own = self._give(pod, container, family, chosen[container.name], reusable, chance)
                given.append((container, own))
            if container.kind is not ContainerKind.INIT and chance.random() < 0.5:
                self._tell(pod, given)
        self._tell(pod, given)
        for _, own in given:
            now = self.book.allocations[own.allocation_id]
            check_not_lone(self.layout, now)
            done = complete_start(self.layout, self.book, now)
            self.book.put(replace(done, started=True))

    def _give(
        self,
        pod: PodRequest,
        container: ContainerRequest,
        family: Family,
        uuids: Sequence[str],
        reusable: dict[tuple[Family, Half], set[str]],
        chance: random.Random,
    ) -> Allocation:
        halves = [half for half in Half if container.amount(DOMAIN, family, half)]
        chance.shuffle(halves)
        own: Allocation | None = None
        for half in halves:
            asked = container.amount(DOMAIN, family, half)
            again = reusable.setdefault((family, half), set())
            units = chance.sample(sorted(again), min(asked, len(again)))
            for gpu in self.gpus:
                if gpu.gpu.uuid in uuids and gpu.family is family:
                    names = unit_names(gpu, half)
                    units += [u for u in names if u not in units and self.book.is_free(u)]
            if len(units) < asked:
                raise AllocationRefused(f"{container.name}: {len(units)} of {asked} {half}")
            units = units[:asked]
            for settled in pairing.settle_before(self.book, family, half):
                self.book.put(settled)
            got = pairing.allocate(
                self.layout, self.book, family, half, units, 1.0, f"a{next(self._ids)}"
            )
            if own is not None and got.allocation_id != own.allocation_id:
                raise AllocationRefused(f"{container.name}: the halves are of two allocations")
            if own is None and got.allocation_id in self.book.allocations:
                raise AllocationRefused(f"{container.name}: joined to another container")
            if own is None:
                self.pods[pod.name].append(got.allocation_id)
            self.book.put(got)
            own = got
            if container.kind is ContainerKind.INIT:
                again.update(units)
            else:
                again.difference_update(units)
        assert own is not None
        own = replace(own, settled=True)
        self.book.put(own)
        return own

    def _tell(self, pod: PodRequest, given: list[tuple[ContainerRequest, Allocation]]) -> None:
        """Notes whose these are, as podresources tells: not those of plain init ones."""
        for container, each in given:
            if container.kind is not ContainerKind.INIT:
                owner = Owner(pod.namespace, pod.name, container.name)
                self.book.put(replace(self.book.allocations[each.allocation_id], owner=owner))
