"""Which NVLinks join two GPUs, as NVML says link by link.

A link ends at another GPU, at an NVSwitch (then it leads to every GPU that has links to switches:
they are one fabric within a machine), or at a CPU, which joins no GPUs. NVML names the other end by
its place on the PCI bus. A link whose end it does not know counts for nothing.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

#: NVML_NVLINK_MAX_LINKS; a GPU with fewer refuses the first number that it does not have.
_MOST_LINKS = 36
_ENABLED = 1
_ENDS_AT_SWITCH = 2  # NVML_NVLINK_DEVICE_TYPE_SWITCH

#: Domain, bus and device.
Place = tuple[int, int, int]
#: Calls a function of NVML by its name; None where it cannot say.
Ask = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Links:
    """The active NVLinks of one GPU.

    Attributes:
        place: of the GPU itself; None where NVML does not know.
        ends: how many go to each place that is not a switch.
        to_switches: how many go to NVSwitches.
    """

    place: Place | None
    ends: Counter[Place]
    to_switches: int


def read_links(ask: Ask, handles: Sequence[Any]) -> list[Links]:
    """Returns the links of each GPU.

    Args:
        handles: of all GPUs of the node.
    """
    places = [_place(ask("nvmlDeviceGetPciInfo", handle)) for handle in handles]
    gpus = {place for place in places if place is not None}
    return [_links(ask, handle, place, gpus) for handle, place in zip(handles, places, strict=True)]


def joining(one: Links, other: Links) -> int:
    """Returns how many links join two GPUs: direct ones, and those of the poorer to switches."""
    direct = max(
        one.ends[other.place] if other.place else 0, other.ends[one.place] if one.place else 0
    )
    return direct + min(one.to_switches, other.to_switches)


def _links(ask: Ask, handle: Any, place: Place | None, gpus: set[Place]) -> Links:
    ends: Counter[Place] = Counter()
    to_switches = 0
    for link in range(_MOST_LINKS):
        state = ask("nvmlDeviceGetNvLinkState", handle, link)
        if state is None:
            break
        if state != _ENABLED:
            continue
        end = _place(ask("nvmlDeviceGetNvLinkRemotePciInfo", handle, link))
        if end in gpus:
            ends[end] += 1
        elif ask("nvmlDeviceGetNvLinkRemoteDeviceType", handle, link) == _ENDS_AT_SWITCH:
            to_switches += 1
    return Links(place, ends, to_switches)


def _place(info: Any) -> Place | None:
    return None if info is None else (int(info.domain), int(info.bus), int(info.device))
