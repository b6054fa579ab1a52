"""Which units a container is given, in the order in which the kubelet looks for them.

1. Units of the pod's plain init containers, at random and without asking the plugin.
2. What is still missing: GetPreferredAllocation is asked about all free units. It must name as many
   units as the container asks for in all, those that it has already among them.

What the plugin names too much is left, at random; what it names too little is filled up at random,
from units of a NUMA node first. Each unit counts as given away as soon as it is chosen. No
container has an affinity to NUMA nodes here: the device manager of a real kubelet judges those
(`tests/e2e/devicemanager`).
"""

import random
from collections.abc import Iterable, Set

from .plugin_client import Plugin
from .unit_table import UnitTable


def choose(
    plugin: Plugin,
    count: int,
    reusable: Set[str],
    table: UnitTable,
    order: random.Random,
) -> list[str]:
    """Returns ``count`` units of the plugin's.

    Args:
        reusable: units of the pod's init containers.
        table: units given away; those chosen are entered.
        order: source of the random choices.

    Raises:
        ValueError: there are not enough.
        grpc.RpcError: the plugin refused to choose.
    """
    healthy = {name for name, device in plugin.devices.items() if device.healthy}
    if not healthy:
        raise ValueError(f"no healthy devices present; cannot allocate {plugin.resource}")
    chosen: list[str] = []

    def take(units: Iterable[str]) -> bool:
        """Takes of ``units`` what is still missing; returns whether nothing is any more."""
        left = sorted(set(units) - set(chosen))
        order.shuffle(left)
        for unit in left[: count - len(chosen)]:
            table.take(plugin.resource, unit)
            chosen.append(unit)
        return len(chosen) == count

    def preferred(among: Set[str]) -> set[str]:
        if not plugin.options.get_preferred_allocation_available:
            return set()
        return set(plugin.prefer(sorted(among | set(chosen)), chosen, count))

    if take(reusable):
        return chosen
    free = healthy - table.given(plugin.resource)
    if len(free) < count - len(chosen):
        raise ValueError(
            f"requested number of devices unavailable for {plugin.resource}: "
            f"requested {count}, available {len(free) + len(chosen)}"
        )
    for units in (preferred(free) & free, _placed(plugin, free), free):
        if take(units):
            break
    return chosen


def _placed(plugin: Plugin, free: Set[str]) -> set[str]:
    return {unit for unit in free if _nodes(plugin, unit)}


def _nodes(plugin: Plugin, unit: str) -> tuple[int, ...]:
    """Returns the NUMA nodes of a unit; a list that came meanwhile may lack it."""
    device = plugin.devices.get(unit)
    return device.numa_nodes if device else ()
