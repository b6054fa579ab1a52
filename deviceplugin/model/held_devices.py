"""Who holds devices that are given whole or as replicas: as values.

Unlike a slice, such a device has no files and no limits, and the kubelet alone decides who gets it;
so nothing is saved here. What the kubelet has on record says who holds what; a device that was
given a moment ago is held although that is not on record yet.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .allocations import Owner

#: The kubelet records an answer within milliseconds; a listing may be older than that.
UNRECORDED_S = 10.0


@dataclass(frozen=True, slots=True)
class HeldDevice:
    """One device or replica that a container has.

    Attributes:
        resource: its name, with the domain.
        owner: None until podresources told.
        given_s: when it was given, on a monotonic clock; None where only the record says it.
    """

    resource: str
    device_id: str
    owner: Owner | None = None
    given_s: float | None = None


Held = Mapping[tuple[str, str], HeldDevice]  # by resource and id


def with_given(held: Held, resource: str, device_ids: Iterable[str], now_s: float) -> Held:
    """Returns what is held after devices were given to a container."""
    given = {(resource, each): HeldDevice(resource, each, None, now_s) for each in device_ids}
    return {**held, **given}


def after_record(held: Held, recorded: Iterable[HeldDevice], now_s: float) -> Held:
    """Returns what is held by what the kubelet has on record now.

    Args:
        recorded: of every container that may run; an owner may be missing.
        now_s: on the clock of `HeldDevice.given_s`.
    """
    found = {
        key: each
        for key, each in held.items()
        if each.given_s is not None and now_s - each.given_s < UNRECORDED_S
    }
    for each in recorded:
        key = each.resource, each.device_id
        known = found.get(key) or held.get(key)
        if each.owner is None and known is not None and known.owner is not None:
            each = known
        found[key] = each
    return found
