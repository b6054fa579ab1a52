"""Where one container of a pod could go, the best first: pure.

The order is that of the agents (`placement.left`, whole GPUs by `topology.closest`), so the first
is where an agent would put it that knows both halves. Of GPUs in the same state one is named.
"""

from collections.abc import Iterator

from deviceplugin.inventory.topology import closest_of
from deviceplugin.model.units import CORE_UNITS_PER_GPU
from deviceplugin.policy.pairing.implicit_units import default_memory
from deviceplugin.policy.pairing.placement import left, order_key
from libvgpu.limits import Family

from .demand import Ask, Demand
from .node_view import NodeView
from .placing import Rooms, is_usable
from .plans import Refusal
from .reasons import is_whole, most_units, no_gpu, too_few_whole


class Candidates:
    """The GPUs of one node for the containers of one pod."""

    def __init__(self, view: NodeView, demand: Demand) -> None:
        self._view, self._demand = view, demand
        wishes = demand.wishes
        anywhere = wishes.are_for_any_gpu
        self._wished = [anywhere or wishes.allow(gpu.product, gpu.uuid) for gpu in view.gpus]
        self._usable: dict[tuple[Family | None, bool], list[int]] = {}
        self._most: dict[Family | None, int] = {}

    def of(self, ask: Ask, rooms: Rooms) -> Iterator[tuple[int, ...]]:
        """Yields where a container could go, the best first; some of them may not do."""
        gpus, family = self._view.gpus, ask.family
        usable = self._usable.get((family, ask.is_lone))
        if usable is None:
            usable = self._usable[family, ask.is_lone] = [
                place
                for place, gpu in enumerate(gpus)
                if self._wished[place] and is_usable(gpu, ask)
            ]
            self._most[family] = most_units(gpus, family)
        must = rooms.must_have(ask)
        if is_whole(ask, self._most[family]):
            yield from self._whole(ask, rooms, usable, must)
            return
        if must:
            yield from ((place,) for place in usable if place in must)
            return
        found = []
        core, asked, policy = ask.core, ask.memory, self._demand.wishes.gpu_policy
        for place in usable:
            if rooms.core[place] < core:
                continue
            gpu = gpus[place]
            memory = asked or default_memory(gpu.memory_units, core)
            memory_free = rooms.memory[place]
            if memory_free >= memory and rooms.containers[place]:
                over = left(rooms.core[place], memory_free, gpu.memory_units, core, memory)
                found.append((order_key(policy or gpu.placement, over, gpu.index), place))
        if not found:
            return
        yield (min(found)[1],)
        if len(self._demand.asks) > 1 and len(found) > 1:
            found.sort()
            seen = {rooms.state_of(found[0][1])}
            for _, place in found[1:]:
                state = rooms.state_of(place)
                if state not in seen:
                    seen.add(state)
                    yield (place,)

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
            if ask.memory <= self._most[ask.family]:
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

    def why_none(self, ask: Ask, rooms: Rooms) -> Refusal:
        """Returns why a container, put after others, has no place."""
        gpus = rooms.with_free()
        must = rooms.must_have(ask)
        if must:
            numbers = " and ".join(str(gpus[place].index) for place in sorted(must))
            return Refusal(
                f"it takes over what an init container had on GPU {numbers}, where it does not fit"
            )
        most = self._most[ask.family]
        if not is_whole(ask, most):
            return no_gpu(gpus, ask, self._demand.wishes)
        count = ask.core // CORE_UNITS_PER_GPU or ask.memory // most
        eligible = sum(
            self._wished[place]
            and is_usable(gpu, ask)
            and rooms.is_untouched(place)
            and rooms.containers[place] > 0
            for place, gpu in enumerate(gpus)
        )
        return too_few_whole(gpus, eligible, count, ask, self._demand.wishes)
