"""Whether another device plugin hands out the GPUs that this agent serves. Pure.

Two plugins for one GPU give it away twice, and neither can notice from the kubelet's calls. Two
things show it. The kubelet lists the devices of every resource; NVIDIA's plugin and those made
after it call a device by its GPU's UUID, with more behind it for replicas. And where the other
plugin serves a resource of the same name, of which the kubelet knows one at a time, its socket
answers: NVIDIA's is called ``nvidia-<resource>.sock``, ours after the whole resource name.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from deviceplugin.model.units import Half
from libvgpu.limits import Family

#: Slices are ours, also of a family that is not served now.
_SLICES = {f"{family.name.lower()}-{half.name.lower()}" for family in Family for half in Half}
#: How much of the names is told.
_MOST_NAMED = 4


@dataclass(frozen=True, slots=True)
class DevicePlugins:
    """What the kubelet's directory of device plugins tells.

    Attributes:
        registered: resource -> ids of the devices that it offers.
        sockets: names of the plugins' sockets that answer.
    """

    registered: Mapping[str, Collection[str]]
    sockets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ForeignPlugins:
    """What others hand out; false where there is nothing.

    Attributes:
        resources: resource -> GPUs of ours among its devices, both sorted.
        sockets: of NVIDIA's plugin, sorted.
    """

    resources: tuple[tuple[str, tuple[str, ...]], ...] = ()
    sockets: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Whether there is another plugin."""
        return bool(self.resources or self.sockets)

    def sentence(self) -> str:
        """Returns what was seen, as one sentence without its full stop."""
        parts = [f"resource {name} has {_named(gpus)}" for name, gpus in self.resources]
        if self.sockets:
            parts.append(f"NVIDIA's device plugin answers on {_named(self.sockets)}")
        return "another device plugin hands out the same GPUs: " + "; ".join(parts)


def foreign_plugins(
    seen: DevicePlugins, ours: Collection[str], gpus: Collection[str]
) -> ForeignPlugins:
    """Returns what is not ours.

    Args:
        ours: the resources that this agent serves.
        gpus: UUIDs of the GPUs that it serves.
    """
    resources = {
        name: {uuid for uuid in gpus for device in devices if device.startswith(uuid)}
        for name, devices in seen.registered.items()
        if name not in ours and name.rpartition("/")[2] not in _SLICES
    }
    return ForeignPlugins(
        tuple(sorted((name, tuple(sorted(found))) for name, found in resources.items() if found)),
        tuple(sorted(s for s in seen.sockets if s.startswith("nvidia-") and s.endswith(".sock"))),
    )


def _named(names: Collection[str]) -> str:
    listed = sorted(names)
    more = len(listed) - _MOST_NAMED
    return ", ".join(listed[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
