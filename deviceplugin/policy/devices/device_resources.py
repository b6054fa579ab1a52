"""GPUs and MIG devices that are given whole or as replicas: which resource they are. Pure.

What no entry of ``sharing.fractional`` takes is offered as NVIDIA's plugin offers it. A GPU is one
``nvidia.com/gpu``; a GPU in MIG mode is never one itself, and what its MIG devices are says
``migStrategy``:

* ``none``: nothing is offered of it, and why is said.
* ``single``: they are ``nvidia.com/gpu``, if every GPU here is in MIG mode and all MIG devices have
  one profile; else nothing is offered at all, as with NVIDIA's plugin.
* ``mixed``: they are ``nvidia.com/mig-<profile>``, with "." for "+".

Replicas of a device are called ``<UUID>::<n>``, as NVIDIA's plugin calls them.
"""

from collections import Counter
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass

from deviceplugin.model.device_match import NamePattern
from deviceplugin.model.gpus import Gpu
from deviceplugin.model.units import MOST_UNITS_PER_RESOURCE
from deviceplugin.model.whole_devices import (
    GPU_RESOURCE,
    MIG_PREFIX,
    MigStrategy,
    ReplicaKind,
    Replicas,
    WholeDevices,
)

from .gpu_numbers import RecordedGpu

_MOST_DIGITS = 8


@dataclass(frozen=True, slots=True)
class OfferedDevice:
    """One device of a resource.

    Attributes:
        ids: what the kubelet counts: the device itself, or its replicas.
        drains: it is to be shared in another way once its containers have ended; only what they
            hold is listed.
    """

    gpu: Gpu
    ids: tuple[str, ...]
    drains: bool = False

    def has(self, device_id: str) -> bool:
        """Returns whether an id is one of its own; replicas are in the order of their numbers."""
        number = device_id.rpartition("::")[2]
        if number.isdecimal() and len(number) < _MOST_DIGITS:
            at = int(number)
            if at < len(self.ids) and self.ids[at] == device_id:
                return True
            if not self.drains:
                return False
        return device_id in self.ids


@dataclass(frozen=True, slots=True)
class DeviceResource:
    """One resource of whole devices or of replicas.

    Attributes:
        name: with the domain, as the kubelet knows it.
        replicated: its name without the domain before it was renamed.
        devices: in the order of their indexes.
        kind: who divides a device between its replicas; None where there are none.
        refuses_more_than_one: a container may have one replica and no more.
    """

    name: str
    replicated: str
    devices: tuple[OfferedDevice, ...]
    kind: ReplicaKind | None = None
    refuses_more_than_one: bool = False

    @property
    def is_renamed(self) -> bool:
        """Its replicas have another name than the devices themselves would have."""
        return self.name.rpartition("/")[2] != self.replicated

    def device_of(self, device_id: str) -> OfferedDevice | None:
        """Returns the device that an id stands for, None where it is none of this resource."""
        uuid = device_of(device_id)
        return next((d for d in self.devices if d.gpu.uuid == uuid and d.has(device_id)), None)


@dataclass(frozen=True, slots=True)
class Withheld:
    """A GPU of which nothing is offered, and why, as a sentence's end."""

    gpu: Gpu
    reason: str


@dataclass(frozen=True, slots=True)
class OfferedDevices:
    """What is offered of some GPUs, and what is not.

    Attributes:
        unmatched: entries of the config that are for no device here, by path.
    """

    resources: tuple[DeviceResource, ...]
    withheld: tuple[Withheld, ...]
    unmatched: tuple[str, ...]


class TooManyReplicasError(Exception):
    """An entry makes more units of a resource, on all its GPUs, than a kubelet takes.

    Attributes:
        message: what is wrong with the entry's replicas, as a sentence.
    """

    def __init__(self, entry: Replicas, domain: str, units: int, devices: int) -> None:
        others = units - entry.replicas * devices
        most = max(0, MOST_UNITS_PER_RESOURCE - others) // devices
        self.entry = entry
        self.message = (
            f"{entry.path[2:]}.replicas is {entry.replicas}, which on {devices} devices makes "
            f"{units} units of {domain}/{entry.advertised} in all, and a kubelet reads at most "
            f"{MOST_UNITS_PER_RESOURCE} in one message; allowed here are {most} replicas"
        )
        super().__init__(self.message)


def device_of(device_id: str) -> str:
    """Returns the UUID in the name of a device or of a replica."""
    return device_id.partition("::")[0]


def is_well(gpu: Gpu, unhealthy: Container[str]) -> bool:
    """Returns whether neither a device nor the GPU that it is a part of is unhealthy."""
    return gpu.uuid not in unhealthy and (gpu.mig is None or gpu.mig.parent_uuid not in unhealthy)


def place_of(gpu: Gpu) -> tuple[int, int]:
    """Returns by what devices are ordered: a GPU, then its MIG devices, then the next GPU."""
    return gpu.index, gpu.mig.number if gpu.mig else -1


def offer_devices(
    whole: WholeDevices,
    domain: str,
    devices: Iterable[Gpu],
    lost: Iterable[RecordedGpu] = (),
) -> OfferedDevices:
    """Returns what is offered.

    Args:
        domain: of all resources.
        devices: that nobody shares otherwise: GPUs, and the single MIG devices of those in MIG
            mode, each of which stands without its GPU.
        lost: GPUs that are gone and keep their place among the first so many.

    Raises:
        TooManyReplicasError: a resource has more of them than a kubelet takes.
    """
    ordered = sorted(devices, key=place_of)
    gone: dict[str, list[int]] = {}
    for each in lost:
        gone.setdefault(_first(whole.gpu_names, each.product, GPU_RESOURCE), []).append(each.index)
    named, withheld = _names(whole, ordered)
    by_name: dict[str, list[Gpu]] = {}
    for gpu, name in named:
        by_name.setdefault(name, []).append(gpu)
    resources: list[DeviceResource] = []
    units = Counter(name for _, name in named)
    unmatched = [entry.path for entry in whole.replicas if entry.resource not in by_name]
    for name, gpus in by_name.items():
        entry = next((each for each in whole.replicas if each.resource == name), None)
        chosen = _chosen(entry, gpus, gone.get(name, ())) if entry is not None else []
        if entry is not None and entry.kind is ReplicaKind.MPS:
            reasons = {gpu.uuid: why for gpu in chosen if (why := _why_not_by_mps(gpu))}
            withheld += (Withheld(gpu, reasons[gpu.uuid]) for gpu in gpus if gpu.uuid in reasons)
            gpus = [gpu for gpu in gpus if gpu.uuid not in reasons]
            chosen = [gpu for gpu in chosen if gpu.uuid not in reasons]
        plain = [OfferedDevice(gpu, (gpu.uuid,)) for gpu in gpus if gpu not in chosen]
        if not gpus:
            continue
        if entry is None or not chosen:
            resources.append(DeviceResource(f"{domain}/{name}", name, tuple(plain)))
            if entry is not None:
                unmatched.append(entry.path)
            continue
        is_renamed = entry.advertised != name
        units[name] -= len(chosen)
        units[entry.advertised] += len(chosen) * entry.replicas
        if units[entry.advertised] > MOST_UNITS_PER_RESOURCE:
            raise TooManyReplicasError(entry, domain, units[entry.advertised], len(chosen))
        shared = [
            OfferedDevice(gpu, tuple(f"{gpu.uuid}::{n}" for n in range(entry.replicas)))
            for gpu in chosen
        ]
        if plain and is_renamed:
            resources.append(DeviceResource(f"{domain}/{name}", name, tuple(plain)))
            plain = []
        all_of_it = sorted((*shared, *plain), key=lambda each: place_of(each.gpu))
        resources.append(
            DeviceResource(
                f"{domain}/{entry.advertised}", name, tuple(all_of_it), entry.kind,
                entry.refuses_more_than_one,
            )
        )  # fmt: skip
    return OfferedDevices(_merged(resources), tuple(withheld), tuple(unmatched))


def _merged(resources: Sequence[DeviceResource]) -> tuple[DeviceResource, ...]:
    """Returns each name once: two resources may have been given one name by ``rename``."""
    found: dict[str, DeviceResource] = {}
    for each in resources:
        same = found.get(each.name)
        if same is not None:
            each = DeviceResource(
                each.name, same.replicated,
                tuple(sorted((*same.devices, *each.devices), key=lambda d: place_of(d.gpu))),
                same.kind or each.kind, same.refuses_more_than_one or each.refuses_more_than_one,
            )  # fmt: skip
        found[each.name] = each
    return tuple(found.values())


def _names(
    whole: WholeDevices, devices: Sequence[Gpu]
) -> tuple[list[tuple[Gpu, str]], list[Withheld]]:
    cut = [gpu for gpu in devices if gpu.is_mig_enabled or gpu.mig is not None]
    if whole.mig_strategy is MigStrategy.SINGLE and cut:
        problem = _single_problem(devices)
        if problem is not None:
            return [], [Withheld(gpu, problem) for gpu in devices]
        return [(gpu, _first(whole.gpu_names, gpu.name, GPU_RESOURCE)) for gpu in devices], []
    named, withheld = [], []
    for gpu in devices:
        if gpu.mig is None and not gpu.is_mig_enabled:
            named.append((gpu, _first(whole.gpu_names, gpu.name, GPU_RESOURCE)))
        elif whole.mig_strategy is MigStrategy.MIXED and gpu.mig is not None:
            profile = gpu.mig.profile
            own = MIG_PREFIX + profile.replace("+", ".")
            named.append((gpu, _first(whole.mig_names, profile, own)))
        else:
            withheld.append(Withheld(gpu, _why_not(gpu)))
    return named, withheld


def _why_not_by_mps(gpu: Gpu) -> str | None:
    """Returns why a device cannot be divided under MPS, None where it can."""
    if gpu.mig is not None:
        return "it is a MIG device, which sharing.mps cannot divide"
    if not gpu.memory_bytes:
        return (
            "NVML does not tell how much memory it has, so sharing.mps cannot divide that; give it "
            "whole, or as replicas of sharing.timeSlicing"
        )
    return None


def _why_not(gpu: Gpu) -> str:
    if gpu.mig is not None:
        return "it is a MIG device, and flags.migStrategy is none; single and mixed offer it"
    return "it is in MIG mode and has no MIG device"


def _single_problem(devices: Sequence[Gpu]) -> str | None:
    """Returns why strategy ``single`` cannot serve these devices, None where it can."""
    whole = [gpu for gpu in devices if gpu.mig is None and not gpu.is_mig_enabled]
    empty = [gpu for gpu in devices if gpu.is_mig_enabled]
    profiles = sorted({gpu.mig.profile for gpu in devices if gpu.mig is not None})
    strategy = "flags.migStrategy is single"
    if whole:
        return f"{strategy}, and GPU {whole[0].index} is not in MIG mode while others are"
    if empty:
        return f"{strategy}, and GPU {empty[0].index} is in MIG mode without a MIG device"
    if len(profiles) > 1:
        return f"{strategy}, and the MIG devices are of profiles {', '.join(profiles)}"
    return None


def _first(patterns: Iterable[NamePattern], text: str, default: str) -> str:
    return next((each.name for each in patterns if each.fits(text)), default)


def _chosen(entry: Replicas, gpus: Sequence[Gpu], gone: Iterable[int]) -> list[Gpu]:
    """Returns the devices that have replicas.

    Args:
        gone: indexes of GPUs of this resource that are lost; they count among the first so many.
    """
    if entry.devices is None:
        return list(gpus)
    if isinstance(entry.devices, int):
        places = sorted((*map(place_of, gpus), *((index, -1) for index in gone)))
        first = frozenset(places[: entry.devices])
        return [gpu for gpu in gpus if place_of(gpu) in first]
    return [gpu for gpu in gpus if not names_of(gpu).isdisjoint(entry.devices)]


def names_of(gpu: Gpu) -> frozenset[str]:
    """Returns what a config may call a device: index or UUID, of a MIG device its own or its
    GPU's.
    """
    if gpu.mig is None:
        return frozenset((str(gpu.index), gpu.uuid))
    own = (f"{gpu.index}:{gpu.mig.number}", gpu.uuid)
    return frozenset((*own, str(gpu.index), gpu.mig.parent_uuid))
