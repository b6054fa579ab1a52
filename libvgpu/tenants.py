"""Which slices of a run directory share which GPU, looked up cheaply and often.

`limits` alone is asked: it names the GPUs and the mode, and it is there from the moment
a slice is whole. Its word `active_generation` (contract.h, frozen offset) and its inode say whether
anything is new. The slices are checked four times a second for as long as the node agent lives.
While the directory is as it was, that costs one small read per slice, of files that are kept open;
everything is looked up again now and then all the same.

A tenant is a slice that an arbiter can divide a GPU's time for: family vgpu, compute not off, with
a `ring`. Used by one thread.
"""

import os
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from . import region
from .errors import RegionError
from .limits import WHOLE_CORE_PERCENT, ComputeMode, Family

_GENERATION_OFFSET = 128
_GENERATION = struct.Struct("<Q")
_Version = tuple[int, int]  # inode and generation
#: A directory's time of change is coarse: one this young may change again without showing it.
_SETTLED_NS = 100_000_000
_ANEW_EVERY_NS = 5_000_000_000


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
        self._found: dict[str, list[Tenant]] = {}
        self._open: dict[int, int] = {}  # descriptor of `limits` -> generation at the last look
        self._root_changed_ns: int | None = None  # None: nothing can be said of the next look
        self._looked_ns = 0

    def close(self) -> None:
        """Closes what is kept open; a later `look` opens it again."""
        for descriptor in self._open:
            os.close(descriptor)
        self._open, self._root_changed_ns = {}, None

    def look(self) -> dict[str, list[Tenant]]:
        """Returns the tenants by GPU, in the order of the slices' names; the same object as before
        while nothing has changed.

        A slice that is half made, damaged or about to go is left out, and looked at again.
        """
        now_ns = time.time_ns()
        if not self._is_unchanged(now_ns):
            self._looked_ns = now_ns
            self._found = self._look_anew()
        return self._found

    def _is_unchanged(self, now_ns: int) -> bool:
        if self._root_changed_ns is None or not 0 <= now_ns - self._looked_ns < _ANEW_EVERY_NS:
            return False
        try:
            if os.stat(self._root).st_mtime_ns != self._root_changed_ns:
                return False
            return all(_generation(open_) == known for open_, known in self._open.items())
        except OSError:
            return False

    def _look_anew(self) -> dict[str, list[Tenant]]:
        self.close()
        is_whole = True
        changed_ns: int | None = None
        try:
            root = os.open(self._root, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
        except OSError:
            versions: dict[str, _Version] = {}
        else:
            try:
                changed_ns = os.fstat(root).st_mtime_ns
                versions, self._open, is_whole = _versions(root)
            finally:
                os.close(root)
        known: dict[str, tuple[_Version, Mapping[str, Tenant]]] = {}
        found: dict[str, list[Tenant]] = {}
        for name, version in versions.items():
            entry = self._known.get(name)
            if entry is None or entry[0] != version:
                directory = self._root / name
                if not region.has_ring(directory):
                    is_whole = False
                    continue
                try:
                    entry = (version, _tenants(directory, version[0]))
                except RegionError:
                    is_whole = False
                    continue
            known[name] = entry
            for uuid, tenant in entry[1].items():
                found.setdefault(uuid, []).append(tenant)
        self._known = known
        if is_whole and changed_ns is not None and self._looked_ns - changed_ns > _SETTLED_NS:
            self._root_changed_ns = changed_ns
        return found


def _versions(root: int) -> tuple[dict[str, _Version], dict[int, int], bool]:
    """Looks at each slice below an open directory.

    Returns:
        What it is at, sorted by name; the generation by open descriptor; whether all were whole.
    """
    versions: dict[str, _Version] = {}
    opened: dict[int, int] = {}
    names = sorted(os.listdir(root))
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    for name in names:
        try:
            descriptor = os.open(f"{name}/limits", flags, dir_fd=root)
        except OSError:
            continue
        try:
            generation, inode = _generation(descriptor), os.fstat(descriptor).st_ino
        except OSError:
            generation = None
        if generation is None:  # it is being made
            os.close(descriptor)
            continue
        opened[descriptor] = generation
        versions[name] = inode, generation
    return versions, opened, len(versions) == len(names)


def _generation(descriptor: int) -> int | None:
    """Returns at what an open `limits` is, None where it is not whole."""
    word = os.pread(descriptor, _GENERATION.size, _GENERATION_OFFSET)
    return int(_GENERATION.unpack(word)[0]) if len(word) == _GENERATION.size else None


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
