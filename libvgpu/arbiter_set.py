"""Sees to it that every GPU of a run directory that needs an arbiter has one.

Whoever holds a GPU's lock (`arbitration.hold_gpu`) runs its arbiter for all slices of the run
directory; everybody else tries again at each `look`, so the next one takes over as soon as the
holder ends, however it ends. A GPU needs an arbiter while two slices share it, or while a slice
that may borrow idle time is there: only an arbiter can tell it that the GPU is idle.

`look` returns in milliseconds and waits for nobody. Used by one thread; the arbiters run on
threads of their own.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from .arbitration import ArbiterCounters
from .errors import VgpuError
from .tenants import Tenant, TenantWatch

#: How often to look; a new slice waits this long for its turn, so does a GPU whose holder died.
LOOK_EVERY_S = 0.25


class GpuLock(Protocol):
    """The right to run one GPU's arbiter."""

    def close(self) -> None:
        """Gives it up."""


class GpuArbiter(Protocol):
    """The arbiter of one GPU (`arbitration.Arbiter`)."""

    def add(self, directory: Path, device_index: int) -> None:
        """Takes a slice in."""

    def remove(self, directory: Path) -> None:
        """Lets a slice go; its directory may be gone already."""

    def withhold(self, directory: Path, seconds: float) -> bool:
        """Gives a slice nothing for so long; returns whether it asks in vain."""

    def counters(self) -> ArbiterCounters:
        """Returns what it did so far."""

    def stop(self) -> None:
        """Ends it; its slices go back to their own caps."""


@dataclass(frozen=True, slots=True)
class ArbiterChange:
    """Something that became different since the last call, for a log.

    Attributes:
        uuid: the GPU.
        what: as a message.
        reason: why, where something failed.
    """

    uuid: str
    what: str
    reason: str = ""


@dataclass(slots=True)
class _Held:
    lock: GpuLock
    arbiter: GpuArbiter
    tenants: dict[Path, Tenant] = field(default_factory=dict)
    failed: dict[Path, str] = field(default_factory=dict)


class ArbiterSet:
    """The arbiters that this process runs for one run directory."""

    def __init__(
        self,
        run_dir: Path,
        uuids: Collection[str] | None = None,
        *,
        make: Callable[[], GpuArbiter],
        hold: Callable[[Path, str], GpuLock | None],
    ) -> None:
        """Does nothing yet.

        Args:
            run_dir: whose slices are served.
            uuids: the GPUs to care for; None means every GPU that a slice names.
            make: starts the arbiter of one GPU.
            hold: takes a GPU's lock, or returns None while another process has it.
        """
        self._run_dir, self._make, self._hold = run_dir, make, hold
        self._uuids = None if uuids is None else frozenset(uuids)
        self._watch = TenantWatch(run_dir)
        self._seen: dict[str, list[Tenant]] | None = None  # all that was to be done for it is
        self._held: dict[str, _Held] = {}
        self._said: dict[str, str] = {}  # GPUs without an arbiter of ours -> why

    @property
    def uuids(self) -> frozenset[str]:
        """The GPUs whose arbiter runs here."""
        return frozenset(self._held)

    def look(self) -> list[ArbiterChange]:
        """Makes arbiters and their tenants what the slices are now; returns what is new."""
        changes: list[ArbiterChange] = []
        found = self._watch.look()
        if found is self._seen:
            return changes
        needed = {
            uuid: tenants
            for uuid, tenants in found.items()
            if self._uuids is None or uuid in self._uuids
            if len(tenants) > 1 or any(t.may_borrow for t in tenants)
        }
        for uuid in [u for u in self._held if u not in needed]:
            self._drop(uuid)
            changes.append(ArbiterChange(uuid, "arbiter stopped: nobody shares"))
        for uuid in [u for u in self._said if u not in needed]:
            del self._said[uuid]
        for uuid, tenants in needed.items():
            if uuid not in self._held:
                changes += self._take(uuid)
            if uuid in self._held:
                changes += self._follow(uuid, self._held[uuid], tenants)
        is_done = not self._said and not any(held.failed for held in self._held.values())
        self._seen = found if is_done else None
        return changes

    def withhold(self, uuid: str, directory: Path, seconds: float) -> bool:
        """Gives a slice nothing of a GPU for so long, where its arbiter runs here.

        Returns:
            Whether it was withheld already, and by its own books would have launched a moment ago.
        """
        held = self._held.get(uuid)
        return held is not None and held.arbiter.withhold(directory, seconds)

    def counters(self) -> dict[str, ArbiterCounters]:
        """Returns what the arbiters that run here did so far, by GPU."""
        return {uuid: held.arbiter.counters() for uuid, held in self._held.items()}

    def stop(self) -> None:
        """Ends all arbiters and gives up their GPUs; a later `look` takes them again."""
        for uuid in list(self._held):
            self._drop(uuid)
        self._watch.close()
        self._seen = None

    def _take(self, uuid: str) -> list[ArbiterChange]:
        try:
            lock = self._hold(self._run_dir, uuid)
            if lock is None:
                return self._say(uuid, "arbiter left to another process")
            try:
                self._held[uuid] = _Held(lock, self._make())
            except BaseException:
                lock.close()
                raise
        except (VgpuError, OSError) as error:
            return self._say(uuid, "arbiter cannot be started", str(error))
        self._said.pop(uuid, None)
        return [ArbiterChange(uuid, "arbiter started")]

    def _say(self, uuid: str, what: str, reason: str = "") -> list[ArbiterChange]:
        before, self._said[uuid] = self._said.get(uuid), what + reason
        return [] if before == what + reason else [ArbiterChange(uuid, what, reason)]

    def _follow(self, uuid: str, held: _Held, tenants: list[Tenant]) -> list[ArbiterChange]:
        changes = []
        now = {tenant.directory: tenant for tenant in tenants}
        for directory, old in list(held.tenants.items()):
            new = now.get(directory)
            if new is None or _identity(new) != _identity(old):
                held.arbiter.remove(directory)
                del held.tenants[directory]
        held.failed = {d: reason for d, reason in held.failed.items() if d in now}
        for directory, new in now.items():
            try:
                if directory not in held.tenants:
                    held.arbiter.add(directory, new.device_index)
            except (VgpuError, OSError) as error:  # the others stay
                if not directory.exists():
                    continue  # it has just ended
                if held.failed.get(directory) != str(error):
                    held.failed[directory] = str(error)
                    changes.append(
                        ArbiterChange(uuid, f"{directory.name} not arbitrated", str(error))
                    )
            else:
                held.tenants[directory] = new
                held.failed.pop(directory, None)
        return changes

    def _drop(self, uuid: str) -> None:
        held = self._held.pop(uuid)
        try:
            held.arbiter.stop()
        finally:
            held.lock.close()


def _identity(tenant: Tenant) -> tuple[int, int]:
    return tenant.inode, tenant.device_index
