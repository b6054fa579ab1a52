"""Which GPU an index of the config means: the one that it meant when the config was accepted. Pure.

NVML counts the GPUs that it finds. One that has left the bus shifts those behind it, and an index
in the config would mean another GPU after the next start. So the agent keeps with the config it
accepted which GPU had which index (`GpuRecord`), and numbers the GPUs by that.

It holds while the config names no index that the record has no meaning for. A GPU that is gone
keeps its index, and nothing else takes it; unless all others are where they were and a new GPU is
in its place, which replaces it. Any other new GPU gets the next free index.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from deviceplugin.model.agent_config import AgentConfig
from deviceplugin.model.gpus import UNKNOWN_INDEX, Gpu


@dataclass(frozen=True, slots=True)
class RecordedGpu:
    """One GPU that had an index.

    Attributes:
        product: as NVML named it.
    """

    index: int
    uuid: str
    product: str


@dataclass(frozen=True, slots=True)
class GpuRecord:
    """Which GPU had which index when a config was accepted.

    Attributes:
        named: what that config said of GPUs by index (`named_indexes`).
    """

    named: frozenset[str] = frozenset()
    gpus: tuple[RecordedGpu, ...] = ()

    def holds_for(self, config: AgentConfig) -> bool:
        """Returns whether the indexes of a config mean these GPUs."""
        named = named_indexes(config)
        return bool(named) and named <= self.named


#: Where nothing was accepted yet.
NO_RECORD = GpuRecord()


def named_indexes(config: AgentConfig) -> frozenset[str]:
    """Returns which GPUs a config names by their place: ``0``, ``first 2``; none by UUID."""
    found: set[str] = set()
    for devices in (
        *(entry.devices for entry in config.fractional),
        *(layout.devices for layout in config.mig_layouts),
        *(entry.devices for entry in config.whole.replicas),
    ):
        if isinstance(devices, int):
            found.add(f"first {devices}")
        elif devices is not None:
            indexes = (str(device).partition(":")[0] for device in devices)
            found.update(index for index in indexes if index.isdecimal())
    return frozenset(found)


def record_of(
    config: AgentConfig, gpus: Iterable[Gpu], lost: Iterable[RecordedGpu], before: GpuRecord
) -> GpuRecord:
    """Returns what is to be kept with a config.

    Args:
        gpus: as they are numbered now.
        lost: see `lost_of`.
        before: the record by which they are numbered, if it holds for the config.
    """
    named = named_indexes(config)
    here = (RecordedGpu(gpu.index, gpu.uuid, gpu.name) for gpu in gpus)
    whole = before.named if named and named <= before.named else named
    return GpuRecord(whole, tuple(sorted((*here, *lost), key=lambda each: each.index)))


def numbered(gpus: Sequence[Gpu], indexes: Mapping[str, int]) -> tuple[Gpu, ...]:
    """Returns GPUs in the order of the indexes that they have.

    Args:
        gpus: with the indexes of NVML.
        indexes: those of the GPUs that are known, by UUID.
    """
    here = {gpu.uuid: indexes[gpu.uuid] for gpu in gpus if gpu.uuid in indexes}
    is_as_before = all(here.get(gpu.uuid, gpu.index) == gpu.index for gpu in gpus)
    taken = frozenset(indexes.values())
    free = (index for index in itertools.count() if index not in taken)
    found = []
    for gpu in gpus:
        index = here.get(gpu.uuid)
        if index is None and is_as_before:
            index = gpu.index
        elif index is None:
            index = next(free)
        found.append(with_index(gpu, index, gpu.index))
    return tuple(sorted(found, key=lambda gpu: gpu.index))


def lost_of(gpus: Iterable[Gpu], recorded: Iterable[RecordedGpu]) -> tuple[RecordedGpu, ...]:
    """Returns the recorded GPUs that are gone and that no other GPU has replaced."""
    here = tuple(gpus)
    uuids, taken = {gpu.uuid for gpu in here}, {gpu.index for gpu in here}
    return tuple(each for each in recorded if each.uuid not in uuids and each.index not in taken)


def with_index(gpu: Gpu, index: int, nvml_index: int = UNKNOWN_INDEX) -> Gpu:
    """Returns a GPU with its MIG devices under an index, which NVML may count otherwise."""
    if gpu.index == index and gpu.nvml_index == nvml_index:
        return gpu
    parts = tuple(replace(part, index=index, nvml_index=nvml_index) for part in gpu.mig_devices)
    return replace(gpu, index=index, nvml_index=nvml_index, mig_devices=parts)
