"""Labels of MIG devices, by the rules of GPU Feature Discovery; see `gpu_labels`. Pure."""

from collections.abc import Sequence
from dataclasses import replace

from deviceplugin.model.gpus import Gpu, MigPart

from .offered import Offered
from .resource_labels import MIB, PREFIX, Labels, named, resource_of, sharing_of
from .values import label_value

_INVALID = {"count": 0, "replicas": 0, "memory": 0}


def mig_labels(gpus: Sequence[Gpu], offered: Offered) -> Labels:
    """Returns what MIG strategy ``single`` or ``mixed`` adds to the labels, or puts in place."""
    labels = {f"{PREFIX}mig.strategy": offered.mig_strategy}
    if offered.mig_strategy == "mixed":
        return labels | _mixed(gpus, offered)
    return labels | _single(gpus, offered)


def single_problem(gpus: Sequence[Gpu], offered: Offered) -> str | None:
    """Returns why MIG strategy ``single`` cannot be served, None where it can."""
    left = _given_whole(gpus, offered)
    cut = [gpu for gpu in left if gpu.is_mig_enabled]
    if any(not gpu.mig_devices for gpu in cut):
        return "a GPU in MIG mode has no MIG device"
    if cut and len(cut) < len(left):
        return "some GPUs are in MIG mode and some are not"
    if len({profile_name(part) for _, part in _mig_devices(left)}) > 1:
        return "MIG devices have more than one profile"
    return None


def _given_whole(gpus: Sequence[Gpu], offered: Offered) -> list[Gpu]:
    """Returns the GPUs without what is shared in fractions: GPUs, and MIG devices of others."""
    taken = frozenset(part.uuid for part in offered.slices)
    found = []
    for gpu in gpus:
        devices = tuple(device for device in gpu.mig_devices if device.uuid not in taken)
        if gpu.uuid not in taken and (devices or not gpu.mig_devices):
            found.append(replace(gpu, mig_devices=devices))
    return found


def profile_name(part: MigPart) -> str:
    """Returns a profile as it stands in names of resources and labels."""
    return part.profile.replace("+", ".")


def _mig_devices(gpus: Sequence[Gpu]) -> list[tuple[Gpu, MigPart]]:
    return [
        (device, device.mig)
        for gpu in gpus
        if gpu.is_mig_enabled
        for device in gpu.mig_devices
        if device.mig is not None
    ]


def _single(gpus: Sequence[Gpu], offered: Offered) -> Labels:
    left = _given_whole(gpus, offered)
    cut = [gpu for gpu in left if gpu.is_mig_enabled]
    if not cut:
        return {}
    if single_problem(gpus, offered) is not None:
        product = label_value(cut[0].name, "MIG", "INVALID")
        return named("gpu", {"product": product, **_INVALID})
    return _profile("gpu", _mig_devices(left), gpus, offered)


def _mixed(gpus: Sequence[Gpu], offered: Offered) -> Labels:
    by_profile: dict[str, list[tuple[Gpu, MigPart]]] = {}
    for device, part in _mig_devices(gpus):
        by_profile.setdefault(profile_name(part), []).append((device, part))
    found: Labels = {}
    for profile, devices in by_profile.items():
        found |= _profile(f"mig-{profile}", devices, gpus, offered)
    return found


def _profile(
    name: str, devices: Sequence[tuple[Gpu, MigPart]], gpus: Sequence[Gpu], offered: Offered
) -> Labels:
    """Returns the labels of MIG devices of one profile, which are offered as ``name``."""
    device, part = devices[0]
    product = next((gpu.name for gpu in gpus if gpu.uuid == part.parent_uuid), gpus[0].name)
    uuids = [each.uuid for each, _ in devices]
    replicas, strategy, suffixes = sharing_of(resource_of(uuids, offered), uuids, offered)
    return named(
        name,
        {
            "product": label_value(product, "MIG", profile_name(part), *suffixes),
            "count": len(devices),
            "replicas": replicas,
            "sharing-strategy": strategy,
            **({"memory": device.memory_bytes // MIB} if device.memory_bytes else {}),
            "multiprocessors": part.multiprocessors,
            "slices.gi": part.gpu_slices,
            "slices.ci": part.compute_slices,
            "engines.copy": part.copy_engines,
            "engines.decoder": part.decoders,
            "engines.encoder": part.encoders,
            "engines.jpeg": part.jpeg_engines,
            "engines.ofa": part.optical_flow_engines,
        },
    )
