"""The config held against the GPUs that are there: which GPU is shared how.

Pure: takes the config and the inventory, returns a frozen `Layout` or one sentence that says what
does not fit together. What of it is in force while slices of an earlier config live is in
`draining`.
"""

from collections.abc import Container
from dataclasses import dataclass

from deviceplugin.config.loading import AgentConfig, FractionalShare, Placement
from deviceplugin.model.concurrency import Concurrency
from deviceplugin.model.gpus import Gpu
from libvgpu.errors import ConfigError
from libvgpu.limits import ComputeMode, Family

#: The kubelet reads a list message of at most 4 MiB; this many units stay well below it.
MOST_UNITS_PER_RESOURCE = 20_000


@dataclass(frozen=True, slots=True)
class SharedGpu:
    """One GPU and how it is shared.

    Attributes:
        drains: it is to be shared in another way once its slices have ended (`draining`).
        concurrency: how its containers run side by side, in family vgpu.
    """

    gpu: Gpu
    family: Family
    memory_unit_bytes: int
    compute: ComputeMode
    placement: Placement = Placement.BINPACK
    drains: bool = False
    concurrency: Concurrency = Concurrency.TIME_SLICES

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
    """All shared GPUs of the node, in the order of their indexes."""

    resource_domain: str
    gpus: tuple[SharedGpu, ...]

    def families(self) -> tuple[Family, ...]:
        """The families that at least one GPU belongs to."""
        return tuple(f for f in Family if any(g.family is f for g in self.gpus))

    def of_family(self, family: Family) -> tuple[SharedGpu, ...]:
        """The GPUs of one family."""
        return tuple(g for g in self.gpus if g.family is family)

    def served_by_mps(self) -> tuple[SharedGpu, ...]:
        """The GPUs whose containers are clients of an MPS server."""
        return tuple(g for g in self.gpus if g.served_by_mps)

    def find(self, uuid: str) -> SharedGpu | None:
        """One GPU, None where it is not shared."""
        return next((shared for shared in self.gpus if shared.gpu.uuid == uuid), None)


def lay_out(
    config: AgentConfig, gpus: tuple[Gpu, ...], absent: Container[int | str] = ()
) -> Layout:
    """Returns which GPU is shared how.

    Args:
        absent: devices that may be named although they are not there; they are left out.

    Raises:
        ConfigError: a device that does not exist, a GPU in two families, a unit that does not fit.
    """
    taken: dict[str, tuple[FractionalShare, SharedGpu]] = {}
    for share in config.shares:
        for gpu in _named(share, gpus, config, absent):
            if gpu.uuid in taken:
                line = config.places.line(taken[gpu.uuid][0].path)
                raise config.places.error(
                    f"{share.path}.devices",
                    f"GPU {gpu.index} ({gpu.uuid}) is already shared on line {line}; "
                    "a GPU belongs to one entry and one family",
                )
            shared = SharedGpu(
                gpu,
                share.family,
                share.memory_unit_bytes,
                share.compute,
                share.placement,
                concurrency=share.concurrency,
            )
            if shared.memory_units == 0:
                raise config.places.error(
                    f"{share.path}.memoryUnit",
                    f"memoryUnit of {share.memory_unit_bytes} bytes does not fit GPU {gpu.index}, "
                    f"which has {gpu.memory_bytes} bytes",
                )
            taken[gpu.uuid] = (share, shared)
        units = sum(s.memory_units for _, s in taken.values() if s.family is share.family)
        if units > MOST_UNITS_PER_RESOURCE:
            raise config.places.error(
                f"{share.path}.memoryUnit",
                f"memoryUnit makes {units} units, more than the {MOST_UNITS_PER_RESOURCE} that a "
                "kubelet reads in one message; choose a larger unit",
            )
    shared_gpus = sorted((s for _, s in taken.values()), key=lambda s: s.gpu.index)
    return Layout(config.resource_domain, tuple(shared_gpus))


def absent_devices(
    config: AgentConfig, gpus: tuple[Gpu, ...]
) -> tuple[frozenset[int | str], ConfigError | None]:
    """Returns the devices that the config names and the node lacks, and the sentence that says so.

    An agent that starts serves the others: a GPU that is lost must not take them along.
    """
    here = {name for gpu in gpus for name in (gpu.index, gpu.uuid)}
    absent = [
        (f"{share.path}.devices[{number}]", device)
        for share in config.shares
        for number, device in enumerate(share.devices or ())
        if device not in here
    ]
    if not absent:
        return frozenset(), None
    names = " and ".join(f"GPU {device}" for _, device in absent)
    said = "do not exist and are" if len(absent) > 1 else "does not exist and is"
    problem = config.places.error(
        absent[0][0], f"{names} {said} left out; this node has: {_here(gpus)}"
    )
    return frozenset(device for _, device in absent), problem


def _here(gpus: tuple[Gpu, ...]) -> str:
    return ", ".join(f"{g.index} ({g.uuid})" for g in gpus) or "none"


def _named(
    share: FractionalShare,
    gpus: tuple[Gpu, ...],
    config: AgentConfig,
    absent: Container[int | str],
) -> tuple[Gpu, ...]:
    if share.devices is None:
        return gpus
    found = []
    for number, device in enumerate(share.devices):
        match = next((g for g in gpus if device in (g.index, g.uuid)), None)
        if match is None and device in absent:
            continue
        if match is None:
            raise config.places.error(
                f"{share.path}.devices[{number}]",
                f"GPU {device} does not exist; this node has: {_here(gpus)}",
            )
        found.append(match)
    return tuple(found)
