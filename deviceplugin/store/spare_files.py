"""Ready-made files for the containers to come, on the disk before anybody can fill it.

`usage` may be written by its container, so a hostile one can fill the run directory's file system.
The next pod must be admitted all the same: it takes a set that was made beforehand and needs no new
room, nor does its ``meta.json`` (`allocation_dirs.make_room`). No room is ever given up and taken
again, since a container that goes on filling would be faster.

Sets are for one GPU, as almost every slice is; a few are for as many as the node has, and are cut
to what a slice of several needs. `make` is called under the agent's lock, `fill` from the agent's
loop; they meet in the lists of sets alone, whose `append` and `pop` are atomic.
"""

import logging
import os
import shutil
from pathlib import Path

from deviceplugin import runtime
from deviceplugin.log import event
from libvgpu import allocation_dirs, region
from libvgpu.errors import RegionError
from libvgpu.limits import ContainerLimits, DeviceLimit, Family

from .container_labels import ContainerLabels

COUNT = 110  # as many pods as a kubelet admits by default
LARGE_COUNT = 2  # those for several GPUs take much more room
_LARGE = "large-"
_MADE_AT_ONCE = 8  # a few milliseconds of the agent's loop
_NOBODY = ContainerLimits("spare", Family.VGPU, (DeviceLimit("none", 0),))


class SpareFiles:
    """Sets of files in ``<run-dir>/spare``.

    Attributes:
        most_devices: that a slice can have on this node; any thread may set it.
    """

    def __init__(
        self, run_dir: Path, count: int = COUNT, labels: ContainerLabels | None = None
    ) -> None:
        """Touches nothing yet.

        Args:
            count: how many sets to have ready.
            labels: for the files that containers get.
        """
        self._labels = labels or ContainerLabels()
        self._root = run_dir / "spare"
        self._count = count
        self.most_devices = 1
        self._ready: list[Path] = []
        self._large: list[Path] = []
        self._is_full = False

    def prepare(self) -> None:
        """Finds the sets of the agent before; half-made ones are removed, and those of a version
        that gave them no room for ``meta.json``.

        Raises:
            OSError: the directory cannot be made.
        """
        self._root.mkdir(mode=0o700, exist_ok=True)
        self._ready, self._large = [], []
        for entry in self._root.iterdir():
            if entry.name.startswith("new-") or not (entry / allocation_dirs.META).exists():
                shutil.rmtree(entry, ignore_errors=True)
            elif entry.name.startswith(_LARGE):
                self._large.append(entry)
            else:
                self._ready.append(entry)

    def is_there(self) -> bool:
        """Returns whether the directory of the sets exists."""
        return os.path.isdir(self._root)

    def fill(self) -> None:
        """Makes some of the missing sets; a full file system is said once and tried again."""
        large = LARGE_COUNT - len(self._large) if self.most_devices > 1 else 0
        for number in range(min(_MADE_AT_ONCE, large + self._count - len(self._ready))):
            name = runtime.random_hex(6)
            where, capacity = self._ready, 1
            if number < large:
                where, capacity = self._large, self.most_devices
                name = f"{_LARGE}{name}"
            new, ready = self._root / f"new-{name}", self._root / name
            try:
                region.create(new, _NOBODY, device_capacity=capacity)
                allocation_dirs.make_room(new)
                self._labels.mark(new)
                new.rename(ready)
            except (RegionError, OSError) as error:
                shutil.rmtree(new, ignore_errors=True)
                if not self._is_full:
                    event(
                        logging.WARNING,
                        "no room for spare files of future containers",
                        reason=error,
                        ready=len(where),
                    )
                self._is_full = True
                return
            self._is_full = False
            where.append(ready)

    def make(self, limits: ContainerLimits) -> Path:
        """Returns a directory with a container's files, from a set where there is a suitable one.

        The caller puts in what is missing and renames it into place; what a kill leaves here is
        removed by the next `prepare`.

        Raises:
            RegionError: no set is left and the files cannot be made.
        """
        sets = self._ready if len(limits.devices) == 1 else self._large
        while sets:
            spare = sets.pop()
            taken = self._root / f"new-{spare.name}"
            try:
                os.rename(spare, taken)
                region.renew(taken, limits)
                return taken
            except (RegionError, OSError):
                shutil.rmtree(taken, ignore_errors=True)
        fresh = self._root / f"new-{limits.allocation_id}"
        region.create(fresh, limits)
        self._labels.mark(fresh)
        return fresh

    def discard(self, directory: Path) -> None:
        """Removes a container's directory, whole or not at all, whenever we are killed."""
        doomed = self._root / f"new-gone-{runtime.random_hex(6)}"
        try:
            os.rename(directory, doomed)
        except FileNotFoundError:
            return
        except OSError:
            doomed = directory
        shutil.rmtree(doomed, ignore_errors=True)
