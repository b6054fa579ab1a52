"""The labels that NVIDIA's GPU Feature Discovery (GFD) writes, with its keys and its rules.

Pure. ``nvidia.com/gpu.*`` tells of one product: of the first GPU that containers can ask for whole,
else of the first that is not in MIG mode. With MIG strategy ``single`` it tells of the MIG devices
instead, if all GPUs are cut into the same ones; any other cut is ``MIG-INVALID`` with nothing to
ask for. With ``mixed`` each profile has labels of its own.

Where a GPU is shared in fractions, GFD has no rule. Nobody can ask for it whole, so it has no
replicas, as a GPU in MIG mode has none; the strategy says how its containers are on it.
"""

from collections.abc import Sequence

from deviceplugin.model.gpus import Gpu

from .mig_labels import mig_labels
from .offered import Machine, Offered, SharingStrategy
from .resource_labels import MIB, PREFIX, Labels, named, resource_of, sharing_of
from .values import label_value

#: By the major number of the compute capability; those of which one has two are asked first.
_FAMILIES = {
    1: "tesla",
    2: "fermi",
    3: "kepler",
    5: "maxwell",
    6: "pascal",
    7: "volta",
    8: "ampere",
    9: "hopper",
    10: "blackwell",
    12: "blackwell",
}
_LATER_FAMILIES = {7: (5, "turing"), 8: (9, "ada-lovelace")}


def gpu_labels(gpus: Sequence[Gpu], offered: Offered, machine: Machine) -> Labels:
    """Returns what GFD would say of the node; nothing where there is no GPU.

    Args:
        gpus: all of the node, those in MIG mode with their MIG devices.
    """
    if not gpus:
        return {}
    labels = {
        f"{PREFIX}gpu.machine": label_value(machine.kind),
        f"{PREFIX}gpu.mode": machine.mode,
        f"{PREFIX}mig.capable": _bool(any(gpu.is_mig_capable for gpu in gpus)),
        f"{PREFIX}mps.capable": _bool(_serves_replicas_by_mps(gpus, offered)),
        **_versions(gpus),
        **_virtual(machine),
        **_whole_gpus(gpus, offered),
    }
    if offered.mig_strategy == "none":
        return labels
    return labels | mig_labels(gpus, offered)


def family_of(major: int, minor: int) -> str:
    """Returns the architecture of a compute capability, as GFD calls it."""
    from_minor, later = _LATER_FAMILIES.get(major, (0, None))
    if later is not None and minor >= from_minor:
        return later
    return _FAMILIES.get(major, "undefined")


def _bool(value: bool) -> str:
    return "true" if value else "false"


def _serves_replicas_by_mps(gpus: Sequence[Gpu], offered: Offered) -> bool:
    shared = any(r.replicas > 1 and r.strategy is SharingStrategy.MPS for r in offered.resources)
    return shared and not any(gpu.is_mig_enabled for gpu in gpus)


def _versions(gpus: Sequence[Gpu]) -> Labels:
    found: Labels = {}
    driver = next((gpu.driver for gpu in gpus if gpu.driver), "")
    parts = driver.split(".")
    if len(parts) in (2, 3):
        major, minor, revision = (*parts, "")[:3]
        for key, old, value in (
            ("major", "major", major),
            ("minor", "minor", minor),
            ("revision", "rev", revision),
        ):
            found[f"{PREFIX}cuda.driver-version.{key}"] = label_value(value)
            found[f"{PREFIX}cuda.driver.{old}"] = label_value(value)
        found[f"{PREFIX}cuda.driver-version.full"] = label_value(driver)
    cuda = next((gpu.cuda_version for gpu in gpus if gpu.cuda_version), None)
    if cuda is not None:
        for key, number in zip(("major", "minor"), cuda, strict=True):
            found[f"{PREFIX}cuda.runtime-version.{key}"] = str(number)
            found[f"{PREFIX}cuda.runtime.{key}"] = str(number)
        found[f"{PREFIX}cuda.runtime-version.full"] = f"{cuda[0]}.{cuda[1]}"
    return found


def _virtual(machine: Machine) -> Labels:
    if machine.virtual_gpus is None:
        return {}
    found = {f"{PREFIX}vgpu.present": _bool(bool(machine.virtual_gpus))}
    for gpu in machine.virtual_gpus:
        found[f"{PREFIX}vgpu.host-driver-version"] = label_value(gpu.host_version)
        found[f"{PREFIX}vgpu.host-driver-branch"] = label_value(gpu.host_branch)
    return found


def _whole_gpus(gpus: Sequence[Gpu], offered: Offered) -> Labels:
    whole = [gpu for gpu in gpus if not gpu.is_mig_enabled]
    asked_for = [gpu for gpu in whole if resource_of((gpu.uuid,), offered)]
    gpu = (asked_for or whole or gpus)[0]
    alike = [each.uuid for each in asked_for or whole or gpus if each.name == gpu.name]
    resource = None if gpu.is_mig_enabled else resource_of(alike, offered)
    replicas, strategy, suffixes = sharing_of(resource, alike, offered)
    values: dict[str, object] = {
        **({"product": label_value(gpu.name, *suffixes)} if gpu.name else {}),
        "count": sum(each.name == gpu.name for each in gpus),
        "replicas": replicas,
        "sharing-strategy": strategy,
    }
    if gpu.memory_bytes:
        values["memory"] = gpu.memory_bytes // MIB
    if gpu.compute_major is not None and gpu.compute_minor is not None:
        values["family"] = family_of(gpu.compute_major, gpu.compute_minor)
        values["compute.major"] = gpu.compute_major
        values["compute.minor"] = gpu.compute_minor
    return named("gpu", values)
