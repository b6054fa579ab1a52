"""What plain init containers of a pod leave to those after them, on one node: pure.

The kubelet gives units of theirs to later containers before anything else, resource by resource and
at random. The agent passes memory on that came with core alone, to a container that has core units
of all who share it. Where chance decides, nothing is counted on.
"""

from dataclasses import dataclass, field

from deviceplugin.model.units import Half

#: Units by the place of their GPU among those of the node.
Units = dict[int, int]
NO_UNITS: Units = {}


@dataclass(slots=True)
class FromInit:
    """What plain init containers of one family leave to later containers.

    Attributes:
        units: of each half that the kubelet gives again.
        defaults: memory units that came with core alone.
        lone: the GPUs of each init container with core alone, and how many of the core units that
            the kubelet gives again are its own, at least.
    """

    units: dict[Half, Units] = field(default_factory=dict)
    defaults: Units = field(default_factory=dict)
    lone: list[tuple[frozenset[int], int]] = field(default_factory=list)

    def copy(self) -> "FromInit":
        """Returns another one of the same content."""
        return FromInit(
            {half: dict(units) for half, units in self.units.items()},
            dict(self.defaults),
            list(self.lone),
        )


def reused(units: Units, amount: int, places: tuple[int, ...]) -> Units | None:
    """Returns which units of init containers one gets; None where not all are on its GPUs, or where
    they are is chance.
    """
    if not units or not amount:
        return NO_UNITS
    total = sum(units.values())
    if any(place not in places for place in units) or (amount < total and len(units) > 1):
        return None
    return units.copy() if amount >= total else {next(iter(units)): amount}


def has_of_each(passed_on: FromInit, place: int, had: int, total: int) -> bool:
    """Returns whether a container that has ``had`` of the ``total`` core units that init ones leave
    certainly has some of each of those with core alone.
    """
    return all(had > total - own for places, own in passed_on.lone if place in places)


def leave(passed_on: FromInit, half: Half, place: int, new: int) -> None:
    """Adds units that an init container got on a GPU and nobody had before."""
    if new:
        units = passed_on.units.setdefault(half, {})
        units[place] = units.get(place, 0) + new


def use_up(passed_on: FromInit, old_core: Units, old_memory: Units) -> None:
    """Takes units away that a container got which runs on with the pod."""
    for half, old in ((Half.CORE, old_core), (Half.MEMORY, old_memory)):
        units = passed_on.units.get(half)
        if units is None:
            continue
        for place, count in old.items():
            units[place] -= count
            if not units[place]:
                del units[place]
    had = sum(old_core.values())
    if had:
        passed_on.lone = [(places, max(0, own - had)) for places, own in passed_on.lone]
