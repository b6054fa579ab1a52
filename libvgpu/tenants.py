"""Which slices of a run directory share which GPU, looked up cheaply and often.

`limits` alone is asked: it names the GPUs and the mode, and it is there from the moment
a slice is whole. Its word `active_generation` (contract.h, frozen offset) and its inode say whether
anything is new, so a look costs one directory listing and one small read per slice. It is taken
four times a second for as long as the node agent lives: 10 us per slice that is as it was.

A tenant is a slice that an arbiter can divide a GPU's time for: family vgpu, compute not off, with
a `ring`. Used by one thread.
"""

import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from . import region
from .errors import RegionError
from .limits import WHOLE_CORE_PERCENT, ComputeMode, Family

_GENERATION_OFFSET = 128
_GENERATION = struct.Struct("<Q")
_Version = tuple[int, int]  # inode and generation


@dataclass(frozen=True, slots=True)
class Tenant:
    """One slice on one GPU.

    Attributes:
        directory: of the slice.
        inode: of its `limits`; another one means another slice of the same name.
        device_index: the GPU's place in `limits`.
        may_borrow: it may use what nobody else wants, so it has to be told when nobody does.
    """

    directory: Path
    inode: int
    device_index: int
    may_borrow: bool


class TenantWatch:
    """The tenants of one run directory."""

    def __init__(self, run_dir: Path) -> None:
        """Does nothing yet; the directory need not exist."""
        self._root = run_dir / "allocations"
        self._known: dict[str, tuple[_Version, Mapping[str, Tenant]]] = {}

    def look(self) -> dict[str, list[Tenant]]:
        """Returns the tenants by GPU, in the order of the slices' names.

        A slice that is half made, damaged or about to go is left out, and looked at again.
        """
        try:
            root = os.open(self._root, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
        except OSError:
            versions: dict[str, _Version] = {}
        else:
            try:
                versions = _versions(root)
            finally:
                os.close(root)
        known: dict[str, tuple[_Version, Mapping[str, Tenant]]] = {}
        found: dict[str, list[Tenant]] = {}
        for name, version in versions.items():
            entry = self._known.get(name)
            if entry is None or entry[0] != version:
                directory = self._root / name
                if not region.has_ring(directory):
                    continue
                try:
                    entry = (version, _tenants(directory, version[0]))
                except RegionError:
                    continue
            known[name] = entry
            for uuid, tenant in entry[1].items():
                found.setdefault(uuid, []).append(tenant)
        self._known = known
        return found


def _versions(root: int) -> dict[str, _Version]:
    """Returns what each slice below an open directory is at, sorted by name."""
    found = {name: _version(name, root) for name in sorted(os.listdir(root))}
    return {name: version for name, version in found.items() if version is not None}


def _version(name: str, root: int) -> _Version | None:
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        descriptor = os.open(f"{name}/limits", flags, dir_fd=root)
    except OSError:
        return None
    try:
        word = os.pread(descriptor, _GENERATION.size, _GENERATION_OFFSET)
        if len(word) != _GENERATION.size:
            return None  # it is being made
        return os.fstat(descriptor).st_ino, _GENERATION.unpack(word)[0]
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _tenants(directory: Path, inode: int) -> dict[str, Tenant]:
    limits = region.read_limits(directory).limits
    if limits.family is not Family.VGPU:
        return {}
    return {
        device.uuid: Tenant(
            directory,
            inode,
            index,
            may_borrow=device.core_percent < WHOLE_CORE_PERCENT
            and (device.compute_mode is ComputeMode.ELASTIC or device.core_percent == 0),
        )
        for index, device in enumerate(limits.devices)
        if device.compute_mode is not ComputeMode.OFF
    }
