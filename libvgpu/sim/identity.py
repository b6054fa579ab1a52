"""Profiles as the machine file keeps them."""

import uuid
from collections.abc import Sequence
from typing import Any

from .._native import ffi
from . import mig
from .calibration import fill_native, read_native
from .profiles import NVIDIA_VENDOR_ID, Profile

_FIRST_PCI_BUS = 0x10
_GPUS_PER_NUMA_NODE = 4
# Fields of Profile that struct sim_profile has under the same name and form.
_SAME_FIELDS = (
    "memory_bytes", "context_bytes", "memory_bytes_per_second", "pcie_bytes_per_second",
    "l2_bytes", "sm_count", "cores_per_sm", "threads_per_sm", "blocks_per_sm",
    "shared_bytes_per_sm", "shared_bytes_per_block", "clock_khz", "memory_clock_khz",
    "memory_bus_bits", "power_limit_milliwatts",
)  # fmt: skip


def text(characters: Any) -> str:
    """Returns a string of the machine file."""
    value: bytes = ffi.string(characters)
    return value.decode()


def read_profile(identity: Any) -> Profile:
    """Returns what a device of a machine really is, which need not be one of the named profiles."""
    source = identity.profile
    same: dict[str, Any] = {field: int(getattr(source, field)) for field in _SAME_FIELDS}
    return Profile(
        name=text(source.name),
        product=text(source.product),
        compute_capability=(source.compute_major, source.compute_minor),
        pci_device_id=source.pci_device_id >> 16,
        calibration=read_native(source.calibration),
        mig_profiles=mig.read_native(identity.mig_profiles, identity.mig_profile_count),
        **same,
    )


def fill_identities(identities: Any, profiles: Sequence[Profile]) -> None:
    """Makes new GPUs in an array of ``struct sim_device_identity``."""
    for index, profile in enumerate(profiles):
        _fill(identities[index], index, profile)


def _fill(identity: Any, index: int, profile: Profile) -> None:
    target = identity.profile
    target.name = profile.name.encode()
    target.product = profile.product.encode()
    target.compute_major, target.compute_minor = profile.compute_capability
    target.pci_device_id = profile.pci_device_id << 16 | NVIDIA_VENDOR_ID
    fill_native(target.calibration, profile.calibration)
    for field in _SAME_FIELDS:
        setattr(target, field, getattr(profile, field))
    identity.uuid = f"GPU-{uuid.uuid4()}".encode()
    identity.serial = str(uuid.uuid4().int % 10**13).encode()
    identity.pci_bus = _FIRST_PCI_BUS + index
    identity.numa_node = index // _GPUS_PER_NUMA_NODE
    identity.mig_profile_count = len(profile.mig_profiles)
    mig.fill_native(identity.mig_profiles, profile.mig_profiles)


def initializer(profile: Profile) -> str:
    """Returns a new GPU as C writes a ``struct sim_device_identity``, the same each time."""
    identities = ffi.new("struct sim_device_identity[1]")
    fill_identities(identities, [profile])
    identities[0].uuid = f"GPU-{uuid.uuid5(uuid.NAMESPACE_OID, profile.name)}".encode()
    identities[0].serial = b"0"
    return _initializer(ffi.typeof(identities[0]), identities[0]) + "\n"


def _initializer(kind: Any, value: Any) -> str:
    if kind.kind == "primitive":
        return str(int(value))
    if kind.kind == "array" and kind.item.cname == "char":
        return f'"{text(value)}"'
    if kind.kind == "array":
        parts = {f"[{i}]": (kind.item, value[i]) for i in range(kind.length)}
    else:
        parts = {f".{name}": (each.type, getattr(value, name)) for name, each in kind.fields}
    written = {place: _initializer(*part) for place, part in parts.items()}
    told = [f"{place} = {c}" for place, c in written.items() if c not in ("0", '""', "{0}")]
    return "{" + ",\n".join(told) + "}" if told else "{0}"
