"""The arbiter of one GPU, and the lock that says whose it is.

`Arbiter` starts the C of arbiter/arbiter.c on a thread of its own, which never takes the GIL, and
tells it who its tenants are. Of all processes that could be a GPU's arbiter, the one that holds the
lock of `hold_gpu` is; the kernel drops the lock with the process, and the next one takes over.
"""

import errno
import fcntl
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from . import region
from ._native import ffi, lib
from .allocation_dirs import private_directory
from .closed_files import open_lock
from .errors import RegionError
from .region_files import open_for_arbiter, write_lock
from .sharing_mode import MODES, Mode

_UUID = re.compile(r"[A-Za-z0-9._-]*[A-Za-z0-9][A-Za-z0-9._-]*")
_WHY = {
    errno.EINVAL: "`limits` or `usage` is damaged, or `ring` is no FIFO",
    errno.EPROTO: "its files are of another layout version",
    errno.ENODEV: "its files have no room for that device",
    errno.ENOSPC: f"an arbiter takes {lib.POLICY_MAX_TENANTS} tenants at most",
}


@dataclass(frozen=True, slots=True)
class TenantCounters:
    """What one tenant had since it was added.

    Attributes:
        occupancy_ns: how long the GPU was its own while it was contended.
        windows: how many windows it was given; one that is extended counts once.
        is_active: whether it wants the GPU, or has work on it, now.
        wanted_part: of the GPU's time, 0 to 1, at most; 0 while it is not active.
    """

    occupancy_ns: int
    windows: int
    is_active: bool
    wanted_part: float


@dataclass(frozen=True, slots=True)
class ArbiterCounters:
    """What an arbiter did since it was started.

    Attributes:
        wakes: how often its thread woke up.
        windows: how many windows it gave.
        overruns: how often work lasted more than 1 ms beyond its window.
        longest_overrun_ns: by how much at most.
        mode: how the GPU is shared now.
        mode_ns: for how long it was shared in each way.
        tenants: by directory.
    """

    wakes: int
    windows: int
    overruns: int
    longest_overrun_ns: int
    mode: Mode
    mode_ns: Mapping[Mode, int]
    tenants: dict[Path, TenantCounters]


class Arbiter:
    """Shares one GPU among tenants by weight; use it as a context manager, or call `stop`.

    Not for several threads at once.
    """

    def __init__(self) -> None:
        """Starts the thread.

        Raises:
            RegionError: there is no memory, thread or descriptor left.
        """
        started = ffi.new("struct arbiter **")
        status = lib.arbiter_start(started)
        if status != 0:
            raise RegionError(f"an arbiter cannot be started: {os.strerror(-status)}")
        self._arbiter: Any = started[0]
        self._indices: dict[Path, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def add(self, directory: Path, device_index: int) -> None:
        """Takes a tenant in, who launches as the arbiter says from now on.

        Its weight is what its `limits` say at any time.

        Args:
            directory: where its `limits`, `usage` and `ring` are.
            device_index: which of the devices that `limits` names this arbiter's GPU is.

        Raises:
            RegionError: it is a tenant already, a file is missing or damaged, or there is no room.
        """
        arbiter = self._running()
        if directory in self._indices:
            raise RegionError(f"{directory} is a tenant of this arbiter already")
        _check("device index", device_index, lib.VGPU_MAX_DEVICES - 1)
        limits, usage, ring = open_for_arbiter(directory, device_index)
        try:
            index = lib.arbiter_add(arbiter, limits, usage, ring, device_index)
            if index < 0:
                os.close(usage)
                os.close(ring)
                why = _WHY.get(-index, os.strerror(-index))
                raise RegionError(f"device {device_index} of {directory} gets no arbiter: {why}")
            self._indices[directory] = index
            region.renew_uncapped(directory, device_index, limits)  # it looks at no grant
        finally:
            os.close(limits)

    def remove(self, directory: Path) -> None:
        """Lets a tenant go, who keeps to its own cap from now on; unknown ones are ignored."""
        index = self._indices.pop(directory, None)
        if index is not None:
            lib.arbiter_remove(self._running(), index)

    def withhold(self, directory: Path, seconds: float) -> bool:
        """Gives a tenant nothing of the GPU for so long; unknown ones are ignored.

        Returns:
            Whether it was withheld already, and by its own books would have launched a moment ago.
        """
        index = self._indices.get(directory)
        if index is None:
            return False
        return bool(lib.arbiter_withhold(self._running(), index, round(seconds * 1e9)))

    def counters(self) -> ArbiterCounters:
        """Returns what was counted so far."""
        arbiter = self._running()
        whole = ffi.new("struct arbiter_counters *")
        lib.arbiter_count(arbiter, whole)
        return ArbiterCounters(
            wakes=whole.wakes,
            windows=whole.windows,
            overruns=whole.overruns,
            longest_overrun_ns=whole.longest_overrun_ns,
            mode=MODES[whole.mode],
            mode_ns={mode: whole.mode_ns[index] for index, mode in MODES.items()},
            tenants={path: self._tenant(index) for path, index in self._indices.items()},
        )

    def stop(self) -> None:
        """Leaves all tenants to their own caps and ends the thread; once is enough."""
        if self._arbiter is not None:
            lib.arbiter_stop(self._arbiter)
            self._arbiter = None
            self._indices.clear()

    def _tenant(self, index: int) -> TenantCounters:
        part = ffi.new("struct arbiter_tenant_counters *")
        lib.arbiter_count_tenant(self._running(), index, part)
        return TenantCounters(part.occupancy_ns, part.windows, part.is_active, part.wanted_part)

    def _running(self) -> Any:
        if self._arbiter is None:
            raise RegionError("this arbiter has been stopped")
        return self._arbiter


class GpuHold:
    """The right to be the arbiter of one GPU, until it is closed or the process ends."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Gives the right up; a second call does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def hold_gpu(run_directory: Path, uuid: str) -> GpuHold | None:
    """Takes the right to arbitrate a GPU among the tenants of one run directory.

    Args:
        run_directory: exists; the lock is ``arbiters/<uuid>`` in it, which no container sees.
        uuid: NVML's name of the GPU or MIG device.

    Returns:
        The right, or None while another process (or another hold of this one) has it.

    Raises:
        RegionError: the lock file cannot be made, or the name cannot be a file's.
        UsageError: ``arbiters`` is not a directory of ours alone.
    """
    if not _UUID.fullmatch(uuid):
        raise RegionError(
            f"{uuid!r} cannot name a GPU: letters, digits, '.', '_' and '-' are allowed"
        )
    path = run_directory / "arbiters" / uuid
    try:
        private_directory(path.parent)
        descriptor = open_lock(path)
    except OSError as error:
        raise RegionError(f"{path} cannot be opened: {error.strerror}") from error
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, write_lock())
    except OSError as error:
        os.close(descriptor)
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return None
        raise RegionError(f"{path} cannot be locked: {error.strerror}") from error
    return GpuHold(descriptor)


def _check(what: str, value: int, most: int) -> None:
    if not 0 <= value <= most:
        raise RegionError(f"{value} cannot be a {what}: 0 to {most} are possible")
