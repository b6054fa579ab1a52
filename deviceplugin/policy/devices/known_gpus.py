"""Which GPUs the node has, by what it had and what is listed now. Pure.

A GPU that works is taken as it is listed. One that is not listed any more, or does not work, is
kept: its units stay on the kubelet's lists, unhealthy, until it works again. Only when another GPU
has its index is it replaced; what containers hold of it is then all that is kept.

GPUs keep their indexes when others go or come (`gpu_numbers`): an entry of the config that names an
index means the GPU that it meant.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from deviceplugin.model.agent_config import AgentConfig
from deviceplugin.model.gpus import Gpu, GpuListing

from .gpu_numbers import GpuRecord, RecordedGpu, lost_of, numbered, with_index


@dataclass(frozen=True, slots=True)
class KnownGpus:
    """The GPUs that count.

    Attributes:
        here: those that the config is held against, in the order of their indexes.
        replaced: GPUs and MIG devices that are there no more and that containers hold.
        lost: those that had an index in an earlier run and that this one has not seen yet.
    """

    here: tuple[Gpu, ...]
    replaced: tuple[Gpu, ...] = ()
    lost: tuple[RecordedGpu, ...] = ()


def known_at_start(gpus: tuple[Gpu, ...], record: GpuRecord, config: AgentConfig) -> KnownGpus:
    """Returns the GPUs that count when an agent starts.

    Args:
        gpus: as NVML lists them.
        record: of the config that was accepted last.
        config: the one that is to be in force.
    """
    if not record.holds_for(config):
        return KnownGpus(gpus)
    here = numbered(gpus, {each.uuid: each.index for each in record.gpus})
    return KnownGpus(here, lost=lost_of(here, record.gpus))


def known_now(
    before: KnownGpus,
    listing: GpuListing,
    is_held: Callable[[str], bool],
    keeps_indexes: bool = True,
) -> KnownGpus:
    """Returns the GPUs that count now.

    Args:
        before: those that did.
        is_held: whether a container holds something of a GPU or MIG device, by its UUID.
        keeps_indexes: else NVML's indexes hold.
    """
    known = {gpu.uuid: gpu for gpu in before.here}
    indexes = {each.uuid: each.index for each in before.lost}
    indexes |= {gpu.uuid: gpu.index for gpu in before.here}
    listed = {gpu.uuid: gpu for gpu in numbered(listing.gpus, indexes if keeps_indexes else {})}
    sick = {each.uuid for each in listing.sick}
    here = [_completed(gpu, known.get(gpu.uuid), sick) for gpu in listed.values()]
    taken = {gpu.index for gpu in here}
    here += [
        with_index(gpu, gpu.index)
        for uuid, gpu in known.items()
        if uuid not in listed and gpu.index not in taken
    ]
    left = {device.uuid for device in devices(here)}
    gone = [*devices(before.here), *before.replaced]
    replaced = {gpu.uuid: gpu for gpu in gone if gpu.uuid not in left and is_held(gpu.uuid)}
    return KnownGpus(
        tuple(sorted(here, key=lambda gpu: gpu.index)),
        tuple(replaced.values()),
        lost_of(here, before.lost) if keeps_indexes else (),
    )


def devices(gpus: Iterable[Gpu]) -> list[Gpu]:
    """Returns GPUs, each followed by its MIG devices."""
    return [device for gpu in gpus for device in (gpu, *gpu.mig_devices)]


def left_out(known: Sequence[Gpu], listing: GpuListing) -> dict[str, str]:
    """Returns why each GPU that is on no list of the kubelet fails, by how it is called.

    Those that are on a list are the health watch's business.
    """
    uuids = {device.uuid for device in devices(known)}
    # A GPU without a UUID that has the index of one that is not listed is that one.
    absent = {gpu.index for gpu in known} - {gpu.index for gpu in listing.gpus}
    found: dict[str, str] = {}
    for each in listing.sick:
        if each.uuid not in uuids and (each.uuid or each.index not in absent):
            before = found.get(str(each))
            found[str(each)] = f"{before}; {each.reason}" if before else each.reason
    return found


def _completed(gpu: Gpu, before: Gpu | None, sick: set[str]) -> Gpu:
    if before is not None and not gpu.memory_bytes:
        gpu = replace(gpu, memory_bytes=before.memory_bytes)  # told once, it stays what it was
    return _with_sick_parts(gpu, before, sick)


def _with_sick_parts(gpu: Gpu, before: Gpu | None, sick: set[str]) -> Gpu:
    """Returns a GPU with those of its MIG devices, too, that are there and do not work."""
    here = {part.uuid for part in gpu.mig_devices}
    kept = [
        part
        for part in (before.mig_devices if before is not None else ())
        if part.uuid in sick and part.uuid not in here
    ]
    if not kept:
        return gpu
    parts = sorted((*gpu.mig_devices, *kept), key=lambda part: part.mig.number if part.mig else 0)
    return replace(gpu, mig_devices=tuple(parts))
