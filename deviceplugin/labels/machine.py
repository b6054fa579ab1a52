"""Reads what the labels say of the machine besides its GPUs: its type, and its PCI devices.

What cannot be read is unknown, which is never an error. The layout of PCI configuration space is
that of the PCI specification; NVIDIA's vGPU marks its devices with a vendor-specific capability
whose data begin with ``VF``, followed by records of one byte type, one byte length (with these
two) and data. Record 0 has the version of the host's driver and its branch, ten bytes each.
"""

import logging
from collections.abc import Iterator
from pathlib import Path

from deviceplugin.log import event

from .offered import Machine, VirtualGpu

UNKNOWN = "unknown"
_VENDOR, _DISPLAY = "0x10de", "0x03"
_MODES = {"0x030000": "graphics", "0x030200": "compute"}

_STATUS, _HAS_CAPABILITIES = 0x06, 0x10
_FIRST_CAPABILITY, _CONFIG_BYTES = 0x34, 256
_VENDOR_SPECIFIC, _MARK = 0x09, b"VF"
_RECORDS_AT, _TEXT_BYTES = 5, 10


def read_machine(machine_type_file: str, sys_dir: Path = Path("/sys")) -> Machine:
    """Returns what is known of the machine.

    Args:
        machine_type_file: whose content is the machine's type; empty where nobody asks.
        sys_dir: where sysfs is mounted.
    """
    devices = list(_gpus(sys_dir / "bus/pci/devices"))
    return Machine(
        kind=_kind(machine_type_file),
        mode=_MODES.get(_read(devices[0] / "class") or "", UNKNOWN) if devices else UNKNOWN,
        virtual_gpus=_virtual_gpus(devices),
    )


def _kind(path: str) -> str:
    if not path:
        return UNKNOWN
    try:
        return Path(path).read_text(errors="replace").strip() or UNKNOWN
    except OSError as error:
        event(logging.INFO, "type of the machine unknown", file=path, reason=error.strerror)
        return UNKNOWN


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return None


def _gpus(devices: Path) -> Iterator[Path]:
    """Yields NVIDIA's display devices by address."""
    try:
        found = sorted(devices.iterdir())
    except OSError:
        return
    for device in found:
        kind = _read(device / "class") or ""
        if kind.startswith(_DISPLAY) and _read(device / "vendor") == _VENDOR:
            yield device


def _virtual_gpus(devices: list[Path]) -> tuple[VirtualGpu, ...] | None:
    found = []
    for device in devices:
        try:
            config = (device / "config").read_bytes()
        except OSError:
            return None
        if len(config) < _CONFIG_BYTES:  # others than root read the first 64 bytes
            return None
        gpu = virtual_gpu(config)
        if gpu is not None:
            found.append(gpu)
    return tuple(found) if devices else None


def virtual_gpu(config: bytes) -> VirtualGpu | None:
    """Returns what a device's configuration space (256 bytes) says of NVIDIA's vGPU.

    Returns:
        None where the device is none of a vGPU.
    """
    capability = _vendor_capability(config)
    if capability is None or capability[3:_RECORDS_AT] != _MARK:
        return None
    at = _RECORDS_AT
    while at + 1 < len(capability) and capability[at] != 0:
        at += max(2, capability[at + 1])
    texts = capability[at + 2 : at + 2 + 2 * _TEXT_BYTES]
    if len(texts) < 2 * _TEXT_BYTES:
        return VirtualGpu()
    version, branch = texts[:_TEXT_BYTES], texts[_TEXT_BYTES:]
    return VirtualGpu(_text(version), _text(branch))


def _vendor_capability(config: bytes) -> bytes | None:
    if not config[_STATUS] & _HAS_CAPABILITIES:
        return None
    at, seen = config[_FIRST_CAPABILITY], set[int]()
    while at and at not in seen and at + 2 < len(config):
        seen.add(at)
        if config[at] == _VENDOR_SPECIFIC:
            return config[at : at + config[at + 2]]
        at = config[at + 1]
    return None


def _text(raw: bytes) -> str:
    return raw.partition(b"\0")[0].decode("ascii", "replace")
