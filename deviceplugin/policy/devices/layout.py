"""The config held against the GPUs that are there: which GPU is shared how.

Pure: takes the config and the inventory, returns a frozen `Layout` or one sentence that says what
does not fit together. What of it is in force while slices of an earlier config live is in
`draining`. What no entry of ``sharing.fractional`` takes is offered whole (`device_resources`).
"""

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass

from deviceplugin.model.agent_config import AgentConfig
from deviceplugin.model.concurrency import Concurrency
from deviceplugin.model.fractional import UNIT_STEP_BYTES, FractionalEntry, LoneHalves, Placement
from deviceplugin.model.gpus import Gpu
from deviceplugin.model.units import MOST_UNITS_PER_RESOURCE
from deviceplugin.model.whole_devices import ReplicaKind
from libvgpu.errors import ConfigError
from libvgpu.limits import ComputeMode, Family

from .device_resources import (
    DeviceResource,
    TooManyReplicasError,
    Withheld,
    names_of,
    offer_devices,
    place_of,
)
from .gpu_numbers import RecordedGpu


@dataclass(frozen=True, slots=True)
class SharedGpu:
    """One GPU and how it is shared.

    Attributes:
        drains: it is to be shared in another way once its slices have ended (`draining`).
        concurrency: how its containers run side by side, in family vgpu.
        replicas: into how many equal replicas of a resource it is divided, in family mps; 0 where
            it is shared in units.
        lone_halves: whether a container may ask for core or memory alone.
    """

    gpu: Gpu
    family: Family
    memory_unit_bytes: int
    compute: ComputeMode
    placement: Placement = Placement.BINPACK
    drains: bool = False
    concurrency: Concurrency = Concurrency.TIME_SLICES
    replicas: int = 0
    lone_halves: LoneHalves = LoneHalves.ALLOW

    @property
    def served_by_mps(self) -> bool:
        """Its containers are clients of one MPS server."""
        return self.family is Family.MPS or self.concurrency is Concurrency.MPS

    @property
    def memory_units(self) -> int:
        """Whole memory units of this GPU."""
        return self.gpu.memory_bytes // self.memory_unit_bytes


@dataclass(frozen=True, slots=True)
class Layout:
    """How the GPUs and MIG devices of the node are given, in the order of their indexes.

    Attributes:
        gpus: those that are shared in fractions.
        resources: of those that are given whole or as replicas.
        withheld: those of which nothing is offered.
        unmatched: entries of the config that are for no device here, by path.
    """

    resource_domain: str
    gpus: tuple[SharedGpu, ...]
    resources: tuple[DeviceResource, ...] = ()
    withheld: tuple[Withheld, ...] = ()
    unmatched: tuple[str, ...] = ()

    def families(self) -> tuple[Family, ...]:
        """The families of which at least one GPU is shared in units."""
        return tuple(f for f in Family if self.of_family(f))

    def of_family(self, family: Family) -> tuple[SharedGpu, ...]:
        """The GPUs of one family that are shared in units."""
        return tuple(g for g in self.gpus if g.family is family and not g.replicas)

    def served_by_mps(self) -> tuple[SharedGpu, ...]:
        """The GPUs whose containers are clients of an MPS server."""
        return tuple(g for g in self.gpus if g.served_by_mps)

    def find(self, uuid: str) -> SharedGpu | None:
        """One GPU, None where it is not shared."""
        return next((shared for shared in self.gpus if shared.gpu.uuid == uuid), None)

    def resource(self, name: str) -> DeviceResource | None:
        """One resource of whole devices, None where there is none of that name."""
        return next((each for each in self.resources if each.name == name), None)

    def resource_of(self, uuid: str) -> DeviceResource | None:
        """The resource that a device is given whole as, None where it is not."""
        return next((r for r in self.resources if any(d.gpu.uuid == uuid for d in r.devices)), None)


def lay_out(
    config: AgentConfig,
    gpus: tuple[Gpu, ...],
    absent: Iterable[int | str] = (),
    lost: Sequence[RecordedGpu] = (),
) -> Layout:
    """Returns which GPU is shared how.

    Args:
        absent: devices that may be named although they are not there; they are left out.
        lost: GPUs that are gone, which may be named, too, and keep their place among the first so
            many.

    Raises:
        ConfigError: a device that does not exist, a GPU in two families, a unit that does not fit.
    """
    taken: dict[str, tuple[FractionalEntry, SharedGpu]] = {}
    withheld: dict[str, Withheld] = {}
    unmatched: list[str] = []
    devices = all_devices(gpus)
    absent = frozenset(absent).union(name for each in lost for name in (each.index, each.uuid))
    for entry in config.fractional:
        found = [gpu for gpu in _named(entry, devices, config, absent) if entry.match.fits(gpu)]
        if not found and not entry.match.is_open:
            unmatched.append(entry.path)
        for gpu in found:
            if gpu.uuid in taken:
                other = taken[gpu.uuid][0]
                if not (entry.match.is_open and other.match.is_open):
                    continue  # entries that select by what a GPU is: the first that fits has it
                raise config.places.error(
                    f"{entry.path}.devices",
                    f"GPU {gpu.index} ({gpu.uuid}) is already shared on line "
                    f"{config.places.line(other.path)}; a GPU belongs to one entry and one family",
                )
            reason = _why_not_shared(gpu, entry)
            if reason is not None:
                withheld[gpu.uuid] = Withheld(gpu, reason)
                continue
            taken[gpu.uuid] = entry, _shared(gpu, entry, config)
        _check_units([s for _, s in taken.values() if s.family is entry.family], entry, config)
    left = [gpu for gpu in devices if gpu.uuid not in taken and gpu.uuid not in withheld]
    try:
        offered = offer_devices(config.whole, config.resource_domain, left, lost)
    except TooManyReplicasError as error:
        raise config.places.error(f"{error.entry.path}.replicas", error.message) from None
    shared_gpus = [*(s for _, s in taken.values()), *_replicated(offered.resources)]
    return Layout(
        config.resource_domain,
        tuple(sorted(shared_gpus, key=lambda s: place_of(s.gpu))),
        offered.resources,
        (*withheld.values(), *offered.withheld),
        (*unmatched, *offered.unmatched),
    )


def all_devices(gpus: Iterable[Gpu]) -> tuple[Gpu, ...]:
    """Returns what can be given: GPUs, and of one that is cut its MIG devices in its place."""
    return tuple(device for gpu in gpus for device in (gpu.mig_devices or (gpu,)))


def _check_units(alike: list[SharedGpu], entry: FractionalEntry, config: AgentConfig) -> None:
    """Holds the memory units of one family, on all its GPUs, against what a kubelet takes."""
    units = sum(shared.memory_units for shared in alike)
    if units > MOST_UNITS_PER_RESOURCE:
        total_bytes = sum(shared.gpu.memory_bytes for shared in alike)
        least_mib = -(-total_bytes // (MOST_UNITS_PER_RESOURCE * UNIT_STEP_BYTES))
        raise config.places.error(
            f"{entry.path}.memoryUnit",
            f"memoryUnit makes {units} units on the {len(alike)} GPUs of the family, and a kubelet "
            f"reads at most {MOST_UNITS_PER_RESOURCE} in one message; choose {least_mib}Mi or more",
        )


def _replicated(resources: Iterable[DeviceResource]) -> Iterable[SharedGpu]:
    """Yields the GPUs that are divided under MPS, each with a memory unit for each replica."""
    for resource in resources:
        if resource.kind is not ReplicaKind.MPS:
            continue
        for device in resource.devices:
            if (count := len(device.ids)) > 1:
                unit_bytes = device.gpu.memory_bytes // count // UNIT_STEP_BYTES * UNIT_STEP_BYTES
                yield SharedGpu(
                    device.gpu, Family.MPS, unit_bytes, ComputeMode.STRICT, replicas=count
                )


def _why_not_shared(gpu: Gpu, entry: FractionalEntry) -> str | None:
    """Returns why a device cannot be shared as an entry says, None where it can."""
    if gpu.is_mig_enabled:
        return "it is in MIG mode and has no MIG device"
    if not gpu.memory_bytes:
        return (
            f"NVML does not tell how much memory it has, so {entry.path[2:]} cannot divide that; "
            "give it whole, or as replicas of sharing.timeSlicing"
        )
    if gpu.mig is not None and (entry.family is Family.MPS or entry.concurrency is Concurrency.MPS):
        return f"it is a MIG device, which {entry.path[2:]} cannot put under MPS"
    return None


def _shared(gpu: Gpu, entry: FractionalEntry, config: AgentConfig) -> SharedGpu:
    shared = SharedGpu(
        gpu,
        entry.family,
        entry.memory_unit_bytes,
        entry.compute,
        entry.placement,
        concurrency=entry.concurrency,
        lone_halves=entry.lone_halves,
    )
    if shared.memory_units == 0:
        raise config.places.error(
            f"{entry.path}.memoryUnit",
            f"memoryUnit of {entry.memory_unit_bytes} bytes does not fit GPU {gpu.index}, "
            f"which has {gpu.memory_bytes} bytes",
        )
    return shared


def absent_devices(
    config: AgentConfig, gpus: tuple[Gpu, ...], lost: Sequence[RecordedGpu] = ()
) -> tuple[frozenset[int | str], ConfigError | None]:
    """Returns the devices that the config names and the node lacks, and the sentence that says so.

    An agent that starts serves the others: a GPU that is lost must not take them along.

    Args:
        lost: GPUs that are gone and whose indexes still mean them.
    """
    here = frozenset().union(*(names_of(gpu) for gpu in all_devices(gpus)))
    absent = [
        (f"{entry.path}.devices[{number}]", device)
        for entry in config.fractional
        for number, device in enumerate(entry.devices or ())
        if str(device) not in here
    ]
    if not absent:
        return frozenset(), None
    meant = {str(each.index): each.uuid for each in lost}
    was = "".join(
        f"; GPU {device} was {meant[str(device)]} when the config was accepted"
        for _, device in absent
        if str(device) in meant
    )
    names = " and ".join(f"GPU {device}" for _, device in absent)
    said = "do not exist and are" if len(absent) > 1 else "does not exist and is"
    problem = config.places.error(
        absent[0][0], f"{names} {said} left out{was}; this node has: {_here(all_devices(gpus))}"
    )
    return frozenset(device for _, device in absent), problem


def _here(gpus: tuple[Gpu, ...]) -> str:
    names = (f"{g.index}:{g.mig.number}" if g.mig else str(g.index) for g in gpus)
    return ", ".join(f"{n} ({g.uuid})" for n, g in zip(names, gpus, strict=True)) or "none"


def _named(
    entry: FractionalEntry,
    devices: tuple[Gpu, ...],
    config: AgentConfig,
    absent: Container[int | str],
) -> tuple[Gpu, ...]:
    if entry.devices is None:
        return devices
    found: list[Gpu] = []
    for number, device in enumerate(entry.devices):
        matches = [gpu for gpu in devices if str(device) in names_of(gpu)]
        if not matches and device not in absent:
            raise config.places.error(
                f"{entry.path}.devices[{number}]",
                f"GPU {device} does not exist; this node has: {_here(devices)}",
            )
        found += (gpu for gpu in matches if gpu not in found)
    return tuple(found)
