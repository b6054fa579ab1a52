"""The search for a place of all containers of a pod on one node: pure.

Containers are put in the order in which the kubelet admits them (`placing`), each where its node's
agent would (`candidates`). So the first branch is what agents do on their own. Where it ends
without a place, the search goes back and tries the next best; a state from which it failed is not
tried again. It gives up after `MOST_STEPS`.
"""

from deviceplugin.model.pod_requests import ContainerKind
from libvgpu._native import lib

from .candidates import Candidates
from .demand import Demand
from .node_view import NodeView
from .placing import Rooms
from .plans import Refusal
from .reasons import no_devices, out_of_steps, together, why_not_offered

#: Containers that are put somewhere in one search, at most: a few milliseconds. As many as in C.
MOST_STEPS: int = lib.PLACEMENT_STEPS


class _OutOfSteps(Exception):  # noqa: N818 - it is no error
    pass


class Search:
    """One search; used once.

    Attributes:
        gave_up: it ended before all was tried.
    """

    def __init__(self, view: NodeView, demand: Demand) -> None:
        self._view, self._demand = view, demand
        self._candidates = Candidates(view, demand)
        self.gave_up = False
        self._steps = 0
        self._failed: set[tuple[object, ...]] = set()
        self._deepest = -1
        self._why = Refusal("")

    def run(self) -> Rooms | Refusal:
        """Returns the rooms with the pod in them."""
        if self._demand.domain != self._view.domain:
            domain = self._view.domain[:60]
            return Refusal(f"the node's resources are of domain {domain}", resolvable=False)
        problem = self._not_offered()
        if problem is not None:
            return problem
        found = self._as_agents_do()
        if found is not None:
            return found
        problem = self._alone()
        if problem is not None:
            return problem
        try:
            return self._put(0, Rooms(self._view)) or self._why
        except _OutOfSteps:
            self.gave_up = True
            return out_of_steps(self._why)

    def _not_offered(self) -> Refusal | None:
        """Returns why the node can never give a container its whole devices, if so."""
        asks = self._demand.asks
        for number, ask in enumerate(asks):
            if ask.devices:
                why = why_not_offered(self._view.devices, ask, self._demand.wishes)
                if why is not None:
                    return together(why, number, len(asks))
        return None

    def _as_agents_do(self) -> Rooms | None:
        """Returns the rooms where the best place of each container will do: the first branch,
        without what is needed to go back.
        """
        rooms = Rooms(self._view)
        for ask in self._demand.asks:
            if ask.family is None:
                if rooms.put_devices(ask) is not None:
                    return None
                continue
            places = next(self._candidates.of(ask, rooms), None)
            if places is None or not rooms.put(ask, places):
                return None
        return rooms

    def _alone(self) -> Refusal | None:
        """Returns why a container fits nowhere even if it were the only one, if one does not.

        Without init containers, whose units others get, that settles most of what does not fit.
        """
        asks = self._demand.asks
        if len(asks) == 1 or any(ask.kind is ContainerKind.INIT for ask in asks):
            return None
        rooms = Rooms(self._view)
        for ask in dict.fromkeys(asks):
            if ask.family is not None and next(self._candidates.of(ask, rooms), None) is None:
                number = asks.index(ask)
                return together(self._candidates.why_none(ask, rooms), number, len(asks))
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
        for places in self._candidates.of(ask, rooms):
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
            self._note(number, self._candidates.why_none(ask, rooms))
        self._failed.add(state or (number, *rooms.state()))
        return None

    def _note(self, number: int, why: Refusal) -> None:
        if number > self._deepest:
            self._deepest = number
            self._why = together(why, number, len(self._demand.asks))
