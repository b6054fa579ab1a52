"""Whether a container may have core or memory alone (``loneHalves``). Pure.

Asked when it starts for the first time: only then is it certain that the other half does not come,
since the kubelet asks for the two in random order and does not say for whom.
"""

from deviceplugin.model.allocations import Allocation
from deviceplugin.model.fractional import LoneHalves
from deviceplugin.model.units import Half, resource_name
from deviceplugin.policy.devices.layout import Layout
from libvgpu.errors import AllocationRefused


def check_not_lone(layout: Layout, allocation: Allocation) -> None:
    """Refuses a container with one half where the config forbids that.

    One that has started before goes on, and one that was taken over with its default has.

    Raises:
        AllocationRefused: what it lacks.
    """
    if allocation.whole or allocation.replicas or allocation.started or allocation.implicit_units:
        return
    shared = layout.find(allocation.uuid)
    if shared is None or shared.lone_halves is LoneHalves.ALLOW:
        return
    has = Half.CORE if allocation.core else Half.MEMORY
    given, missing = (
        resource_name(layout.resource_domain, allocation.family, half) for half in (has, has.other)
    )
    raise AllocationRefused(
        f"{given}: {len(allocation.of(has))} without {missing} is forbidden on this node "
        f"(loneHalves: forbid in the agent's config); ask for {missing} too"
    )
