"""Metrics of GPUs and MIG devices that are given whole or as replicas."""

from collections import Counter
from collections.abc import Iterable

from deviceplugin.model.held_devices import Held
from deviceplugin.policy.devices.layout import Layout

from .metric_names import GPU_WITHHELD, RESOURCE_DEVICES, RESOURCE_DEVICES_HELD, Family


def device_families(layout: Layout, held: Held) -> Iterable[Family]:
    """Returns the families, with a series for every resource and every GPU that is withheld.

    Args:
        layout: in force.
        held: who has devices.
    """
    devices, holders = RESOURCE_DEVICES.family(), RESOURCE_DEVICES_HELD.family()
    counts = Counter(name for name, _ in held)
    for resource in layout.resources:
        devices.add_metric([resource.name], sum(len(each.ids) for each in resource.devices))
        holders.add_metric([resource.name], counts[resource.name])
    withheld = GPU_WITHHELD.family()
    for each in layout.withheld:
        withheld.add_metric([each.gpu.uuid], 1)
    return devices, holders, withheld
