"""Arbiters and locks of GPUs that note what is asked of them, in place of the real ones."""

from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from libvgpu.arbitration import ArbiterCounters
from libvgpu.errors import RegionError
from libvgpu.region import read_limits
from libvgpu.sharing_mode import Mode


@dataclass
class NotedArbiter:
    """Notes its calls by the names of the slices' directories."""

    calls: list[tuple[object, ...]] = field(default_factory=list)
    places: dict[Path, int] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    overruns: int = 0

    def add(self, directory: Path, device_index: int) -> None:
        if directory.name in self.refused:
            raise RegionError(f"{directory.name} is damaged")
        self.calls.append(("add", directory.name, device_index))
        self.places[directory] = device_index

    def remove(self, directory: Path) -> None:
        self.calls.append(("remove", directory.name))
        del self.places[directory]

    def stop(self) -> None:
        self.calls.append(("stop",))
        self.places.clear()

    def withhold(self, directory: Path, seconds: float) -> bool:
        self.calls.append(("withhold", directory.name, seconds))
        return True

    def counters(self) -> ArbiterCounters:
        return ArbiterCounters(0, 0, self.overruns, 5_000_000 * self.overruns, Mode.FREE, {}, {})

    @property
    def weights(self) -> dict[str, int]:
        """What it divides the GPU by now: the real one reads the same.

        A slice that ended and that it has not been told of yet is left out.
        """
        found = {}
        for directory, index in list(self.places.items()):
            with suppress(RegionError):
                found[directory.name] = read_limits(directory).limits.devices[index].weight
        return found


@dataclass
class GpuLocks:
    """The locks of all GPUs, as `arbitration.hold_gpu` gives them."""

    taken: set[str] = field(default_factory=set)

    def hold(self, run_dir: Path, uuid: str) -> "_Lock | None":
        if uuid in self.taken:
            return None
        self.taken.add(uuid)
        return _Lock(self, uuid)


@dataclass
class _Lock:
    locks: GpuLocks
    uuid: str

    def close(self) -> None:
        self.locks.taken.remove(self.uuid)
