"""Whether all containers of a pod fit a node together, and where: pure.

Containers are put in the order in which the kubelet admits them (`placing`), each on the GPU that
its node's agent would take (`placement.left`, whole GPUs by `topology.closest`). So the first
branch of the search is what agents do on their own. Where that ends without a place, the search
goes back and tries the next best; of GPUs in the same state one is tried, and a state from which it
failed is not tried again. It gives up after `MOST_STEPS`.
"""

from collections.abc import Iterator
from dataclasses import replace

from deviceplugin.inventory.topology import closest_of
from deviceplugin.model.pod_requests import ContainerKind, PodRequest
from deviceplugin.model.units import CORE_UNITS_PER_GPU
from deviceplugin.policy.implicit_units import default_memory
from deviceplugin.policy.placement import left, order_key

from .demand import Ask, Demand, demand_of
from .node_view import DRAINS, NodeView, Reservation, Taken
from .placing import Rooms, is_usable
from .plans import Plan, Refusal, share_left
from .reasons import is_whole, most_units, no_devices, no_gpu, together, too_few_whole
from .wishes import Wishes

__all__ = ["MOST_STEPS", "Plan", "Refusal", "plan", "plan_of"]

#: Containers that are put somewhere in one search, at most: a few milliseconds.
MOST_STEPS = 500


def plan(view: NodeView, request: PodRequest, wishes: Wishes) -> Plan | Refusal:
    """Returns where a pod would go on a node, or why it cannot."""
    demand = demand_of(request, wishes, view.domain)
    if isinstance(demand, Refusal):
        return demand
    return plan_of(view, demand, [container.name for container in request.containers])


def plan_of(view: NodeView, demand: Demand, names: list[str]) -> Plan | Refusal:
    """Returns the same for a demand.

    Args:
        names: of the containers, in the order of its asks.
    """
    search = _Search(view, demand)
    found = search.run()
    if isinstance(found, Refusal):
        if not found.resolvable or len(demand.asks) == 1:
            return found
        if isinstance(_Search(_emptied(view), demand).run(), Refusal):
            return replace(found, resolvable=False)
        return found
    gpus = view.gpus
    fractions = {
        places[0]
        for ask, places in zip(demand.asks, found.chosen, strict=True)
        if len(places) == 1
    }  # fmt: skip
    remains = sum(
        share_left(found.core[place], found.memory[place], gpus[place].memory_units)
        for place in fractions
    )
    return Plan(
        {
            name: tuple(gpus[place].uuid for place in places)
            for name, places in zip(names, found.chosen, strict=True)
            if places
        },
        Reservation(
            {gpus[place].uuid: Taken(*taken) for place, taken in found.taken.items()},
            {name: count for name, count in found.devices_taken.items() if count},
        ),
        opens=sum(gpus[place].is_empty for place in found.taken),
        whole=len({place for places in found.chosen if len(places) > 1 for place in places}),
        leftover=remains / len(fractions) if fractions else 0.0,
    )


class _OutOfSteps(Exception):  # noqa: N818 - it is no error
    pass


class _Search:
    """One search; used once."""

    def __init__(self, view: NodeView, demand: Demand) -> None:
        self._view, self._demand = view, demand
        wishes = demand.wishes
        anywhere = wishes.are_for_any_gpu
        self._wished = [anywhere or wishes.allow(gpu.product, gpu.uuid) for gpu in view.gpus]
        self._steps = 0
        self._failed: set[tuple[object, ...]] = set()
        self._deepest = -1
        self._why = Refusal("")

    def run(self) -> Rooms | Refusal:
        """Returns the rooms with the pod in them."""
        if self._demand.domain != self._view.domain:
            domain = self._view.domain[:60]
            return Refusal(f"the node's resources are of domain {domain}", resolvable=False)
        problem = self._alone()
        if problem is not None:
            return problem
        try:
            return self._put(0, Rooms(self._view)) or self._why
        except _OutOfSteps:
            return replace(self._why, reason=f"no place found in time: {self._why.reason}"[:200])

    def _alone(self) -> Refusal | None:
        """Returns why a container fits nowhere even if it were the only one, if one does not.

        Without init containers, whose units others get, that settles most of what does not fit.
        """
        asks = self._demand.asks
        for number, ask in enumerate(asks):
            why = self._why_no_devices(ask)
            if why is not None:
                return together(why, number, len(asks))
        if len(asks) == 1 or any(ask.kind is ContainerKind.INIT for ask in asks):
            return None
        rooms = Rooms(self._view)
        for number, ask in enumerate(asks):
            if ask.family is not None and next(self._candidates(ask, rooms), None) is None:
                return together(self._no_place(ask, rooms), number, len(asks))
        return None

    def _why_no_devices(self, ask: Ask) -> Refusal | None:
        for name, asked in ask.devices:
            room = self._view.devices.get(name)
            if room is None or asked > room.total or (room.most and asked > room.most):
                total, most = (room.total, room.most) if room is not None else (0, 0)
                return no_devices(name, asked, 0, total, most)
            wishes = self._demand.wishes
            if wishes.use_gpus or wishes.avoid_gpus:
                why = "are given whole, and which ones cannot be wished by UUID"
                return Refusal(f"GPUs of {name} {why}"[:200], resolvable=False)
            if not all(map(wishes.allow_model, room.products)):
                few = ", ".join(room.products)
                why = f"{name} may be a GPU that is not as wished ({wishes.described()}): {few}"
                return Refusal(why[:200], resolvable=False)
        return None

    def _put(self, number: int, rooms: Rooms) -> Rooms | None:
        """Puts the container of that number and those after it."""
        asks = self._demand.asks
        if number == len(asks):
            return rooms
        ask = asks[number]
        if ask.family is None:
            lacking = (after := rooms.copy()).put_devices(ask)
            if lacking is None:
                return self._put(number + 1, after)
            room = self._view.devices[lacking]
            asked, free = dict(ask.devices)[lacking], after.devices[lacking]
            self._note(number, no_devices(lacking, asked, free, room.total, room.most))
            return None
        state: tuple[object, ...] | None = None
        if self._deepest >= 0:
            state = (number, *rooms.state())
            if state in self._failed:
                return None
        was_put = False
        for places in self._candidates(ask, rooms):
            self._steps += 1
            if self._steps > MOST_STEPS:
                raise _OutOfSteps
            after = rooms.copy()
            if after.put(ask, places):
                was_put = True
                found = self._put(number + 1, after)
                if found is not None:
                    return found
        if not was_put:
            self._note(number, self._no_place(ask, rooms))
        self._failed.add(state or (number, *rooms.state()))
        return None

    def _note(self, number: int, why: Refusal) -> None:
        if number > self._deepest:
            self._deepest = number
            self._why = together(why, number, len(self._demand.asks))

    def _no_place(self, ask: Ask, rooms: Rooms) -> Refusal:
        gpus = rooms.with_free()
        must = rooms.must_have(ask)
        if must:
            numbers = " and ".join(str(gpus[place].index) for place in sorted(must))
            return Refusal(
                f"it takes over what an init container had on GPU {numbers}, where it does not fit"
            )
        most = most_units(gpus, ask.family)
        if not is_whole(ask, most):
            return no_gpu(gpus, ask, self._demand.wishes)
        count = ask.core // CORE_UNITS_PER_GPU or ask.memory // most
        eligible = sum(
            self._wished[place] and is_usable(gpu, ask) and rooms.is_untouched(place)
            for place, gpu in enumerate(gpus)
        )
        return too_few_whole(gpus, eligible, count, ask, self._demand.wishes)

    def _candidates(self, ask: Ask, rooms: Rooms) -> Iterator[tuple[int, ...]]:
        """Yields where a container could go, the best first; some of them may not do."""
        gpus = self._view.gpus
        usable = [
            place for place, gpu in enumerate(gpus) if self._wished[place] and is_usable(gpu, ask)
        ]
        must = rooms.must_have(ask)
        if is_whole(ask, most_units(gpus, ask.family)):
            yield from self._whole(ask, rooms, usable, must)
            return
        found = []
        for place in usable:
            gpu = gpus[place]
            if must:
                if place in must:
                    found.append(((0, 0), place))
                continue
            core, memory = ask.core, ask.memory or default_memory(gpu.memory_units, ask.core)
            core_free, memory_free = rooms.core[place], rooms.memory[place]
            if core_free >= core and memory_free >= memory and rooms.containers[place]:
                over = left(core_free, memory_free, gpu.memory_units, core, memory)
                placement = self._demand.wishes.gpu_policy or gpu.placement
                found.append((order_key(placement, over, gpu.index), place))
        found.sort()
        if len(found) > 1 and len(self._demand.asks) > 1:
            seen = set()
            for _, place in found:
                state = rooms.state_of(place)
                if state not in seen:
                    seen.add(state)
                    yield (place,)
        else:
            yield from ((place,) for _, place in found)

    def _whole(
        self, ask: Ask, rooms: Rooms, usable: list[int], must: set[int]
    ) -> Iterator[tuple[int, ...]]:
        """Yields sets of whole GPUs, those first that lie closest together."""
        gpus = self._view.gpus
        free = [p for p in usable if p in must or (rooms.is_untouched(p) and rooms.containers[p])]
        if not must <= set(free):
            return
        sizes = sorted({gpus[place].memory_units for place in free})
        count = ask.core // CORE_UNITS_PER_GPU
        if ask.memory:
            if ask.memory <= most_units(gpus, ask.family):
                return  # the agent would look for one GPU if memory is asked for first
            for size in sizes:
                if ask.memory % size == 0 and ask.memory // size == (count or ask.memory // size):
                    same = [place for place in free if gpus[place].memory_units == size]
                    yield from self._closest(same, ask.memory // size, must)
            return
        yield from self._closest(free, count, must)
        if len(self._demand.asks) > 1 and len(sizes) > 1:
            yield from self._mixtures(free, sizes, count, must)

    def _closest(self, free: list[int], count: int, must: set[int]) -> Iterator[tuple[int, ...]]:
        if not must <= set(free) or not max(2, len(must)) <= count <= len(free):
            return
        gpus = self._view.gpus
        places = {gpus[place].uuid: place for place in free}
        required = [gpus[place].uuid for place in must]
        chosen = closest_of([gpus[place] for place in free], count, required)
        yield tuple(places[uuid] for uuid in chosen)

    def _mixtures(
        self, free: list[int], sizes: list[int], count: int, must: set[int]
    ) -> Iterator[tuple[int, ...]]:
        """Yields one set for each way to take so many GPUs of several sizes, small ones first:
        which of one size they are makes no difference to the containers that follow.
        """
        gpus = self._view.gpus
        by_size = {
            size: sorted(
                (place for place in free if gpus[place].memory_units == size),
                key=lambda place: (place not in must, place),
            )
            for size in sizes
        }

        def mixtures(sizes: list[int], count: int) -> Iterator[tuple[int, ...]]:
            if not sizes:
                if count == 0:
                    yield ()
                return
            for number in range(min(count, len(by_size[sizes[0]])), -1, -1):
                for rest in mixtures(sizes[1:], count - number):
                    yield (*by_size[sizes[0]][:number], *rest)

        for chosen in mixtures(sizes, count):
            if must <= set(chosen):
                yield chosen


def _emptied(view: NodeView) -> NodeView:
    """Returns a node as it would be without any pod."""
    return replace(
        view,
        gpus=tuple(
            replace(
                gpu,
                core=CORE_UNITS_PER_GPU,
                memory=gpu.memory_units,
                containers_left=None,
                is_empty=True,
                problem="" if gpu.problem == DRAINS else gpu.problem,
            )
            for gpu in view.gpus
        ),
        devices={name: replace(room, free=room.total) for name, room in view.devices.items()},
    )
