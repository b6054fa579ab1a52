"""Which devices or replicas a container gets, and whether it may have those it was given. Pure.

Whole devices are taken as close to each other as the free ones allow. Of replicas the next one is
of the device with the fewest taken (``distributed``) or with the most (``packed``), where several
of one container are on as many devices as there are; of equals, the first by index.
"""

from collections.abc import Callable, Sequence

from deviceplugin.model.whole_devices import Spread
from libvgpu.errors import AllocationRefused

from .device_resources import DeviceResource, OfferedDevice, device_of

#: The ``count`` GPUs of the given ones that lie closest together, with those of the third argument.
Closest = Callable[[Sequence[str], int, Sequence[str]], Sequence[str]]


def first_by_index(uuids: Sequence[str], count: int, required: Sequence[str]) -> Sequence[str]:
    """Returns GPUs without knowing how they are connected."""
    return [*required, *(u for u in uuids if u not in required)][:count]


def prefer_devices(
    resource: DeviceResource,
    available: Sequence[str],
    must_include: Sequence[str],
    count: int,
    spread: Spread,
    closest: Closest,
) -> list[str]:
    """Returns the ids that GetPreferredAllocation answers.

    Args:
        available: what the kubelet believes free, with ``must_include``.
        must_include: ids that the container has already.
        count: how many it needs, those included.

    Raises:
        AllocationRefused: more than one where one is allowed, too few are free, or what the
            container has already is not offered any more.
    """
    _check_count(resource, count)
    required = list(dict.fromkeys(must_include))
    strangers = [each for each in required if resource.device_of(each) is None]
    if strangers:
        raise AllocationRefused(f"{resource.name}: {strangers[0][:80]} is not offered now")
    offered = {each for each in available if (d := resource.device_of(each)) and not d.drains}
    free = [d for d in resource.devices if any(each in offered for each in d.ids)]
    if len(offered.union(required)) < count:
        raise AllocationRefused(
            f"{resource.name}: {count} are not free, {len(offered)} are offered now"
        )
    if all(d.ids == (d.gpu.uuid,) for d in free):
        uuids = [d.gpu.uuid for d in free]
        uuids += [each for each in required if each not in uuids]
        return list(closest(uuids, count, required))
    return _replicas(free, offered, required, count, spread)


def _replicas(
    free: Sequence[OfferedDevice],
    offered: set[str],
    required: Sequence[str],
    count: int,
    spread: Spread,
) -> list[str]:
    chosen = list(required)
    own: dict[str, int] = {}  # of this container, by device
    for each in required:
        own[device_of(each)] = own.get(device_of(each), 0) + 1
    has = frozenset(required)
    left = {
        d.gpu.uuid: [each for each in d.ids if each in offered and each not in has] for d in free
    }
    while len(chosen) < count:
        # A second replica of a device gives a container nothing, so another device comes first.
        candidates = [d for d in free if left[d.gpu.uuid]]

        def order(device: OfferedDevice) -> tuple[int, int]:
            uuid = device.gpu.uuid
            taken = len(device.ids) - len(left[uuid])
            return own.get(uuid, 0), taken if spread is Spread.DISTRIBUTED else -taken

        uuid = min(candidates, key=order).gpu.uuid
        chosen.append(left[uuid].pop(0))
        own[uuid] = own.get(uuid, 0) + 1
    return chosen


def given_devices(resource: DeviceResource, device_ids: Sequence[str]) -> list[OfferedDevice]:
    """Returns the devices that an `Allocate` is for, each once.

    Raises:
        AllocationRefused: none, an id twice, one that is not offered, or more than are allowed.
    """
    if not device_ids:
        raise AllocationRefused(f"{resource.name} names no device; ask for at least 1")
    if len(set(device_ids)) != len(device_ids):
        raise AllocationRefused(f"{resource.name} names a device twice")
    _check_count(resource, len(device_ids))
    found: dict[str, OfferedDevice] = {}
    for each in device_ids:
        device = resource.device_of(each)
        if device is None or device.drains:
            raise AllocationRefused(
                f"{resource.name}: {each[:80]} is not offered now; its GPU is shared in another "
                "way, or is not there"
            )
        found[device.gpu.uuid] = device
    return list(found.values())


def _check_count(resource: DeviceResource, count: int) -> None:
    if count > 1 and resource.refuses_more_than_one and resource.kind is not None:
        raise AllocationRefused(
            f"{resource.name}: {count} replicas were asked for, and a container may have 1 "
            "(failRequestsGreaterThanOne): a second would give it no more of a GPU"
        )
