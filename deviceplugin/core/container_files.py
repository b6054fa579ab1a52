"""Keeps the files that containers have open, whole and up to date, whatever containers do to them.

Each look holds `limits` and `usage` of every allocation (`store.held_files` says why), writes
limits that a container kept from being written, and gives a `usage` its size again that grew or was
cut off. What was in it does not come back: it was the container's own. `look` is a duty of the
loop, and waits for no container.
"""

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress

from deviceplugin import runtime
from deviceplugin.log import event
from deviceplugin.model.allocations import Owner
from deviceplugin.model.notices import EventReason, container_notice
from deviceplugin.store.held_files import Restored
from deviceplugin.store.slice_files import SliceStore
from libvgpu import region
from libvgpu.errors import RegionError

from .service import SliceService

#: A container may change its file as often as it likes; it is told of no more often than this.
TOLD_EVERY_S = 10.0


class ContainerFiles:
    """The files of all allocations; `look` from one thread."""

    def __init__(
        self,
        service: SliceService,
        store: SliceStore,
        clock: Callable[[], float] = runtime.monotonic,
    ) -> None:
        """Holds no file yet.

        Args:
            clock: seconds, never back.
        """
        self._service, self._store, self._clock = service, store, clock
        self._lock = runtime.lock()
        self._restored: Counter[str] = Counter()
        self._told_s: dict[str, float] = {}
        self._sizes: dict[str, int] = {}  # of `usage`, for as long as an allocation lives

    def look(self) -> None:
        """Looks at all files once."""
        with self._service.state.lock:
            owners = {
                each.allocation_id: each.owner
                for each in self._service.state.book.allocations.values()
            }
        self._store.hold(owners)
        self._service.enforcement.write_late()
        with self._lock:
            for gone in self._restored.keys() - owners.keys():
                del self._restored[gone]
                self._told_s.pop(gone, None)
        self._sizes = {each: size for each, size in self._sizes.items() if each in owners}
        for allocation_id, owner in owners.items():
            self._restore(allocation_id, owner)

    def restored(self) -> Mapping[str, int]:
        """Returns how often `usage` was given its size again, by allocation; from any thread."""
        with self._lock:
            return dict(self._restored)

    def _restore(self, allocation_id: str, owner: Owner | None) -> None:
        directory = self._store.directory(allocation_id)
        size = self._sizes.get(allocation_id)
        with suppress(RegionError):  # nobody knows how long it is to be, or is; it is tried again
            if size is None:
                size = self._sizes[allocation_id] = region.usage_bytes(directory)
            self._store.held.restore(
                directory / "usage", size, lambda done: self._tell(allocation_id, owner, done)
            )

    def _tell(self, allocation_id: str, owner: Owner | None, done: Restored) -> None:
        now_s = self._clock()
        with self._lock:
            self._restored[allocation_id] += not done.problem
            if now_s - self._told_s.get(allocation_id, float("-inf")) < TOLD_EVERY_S:
                return
            self._told_s[allocation_id] = now_s
        what = "was given its size again"
        if done.problem:
            what = f"could not be given its size again: {done.problem}"
        text = (
            f"its file usage had {done.was_bytes} bytes in place of {done.bytes}, which no program "
            f"needs, and {what}"
        )
        event(
            logging.WARNING,
            "a container's usage file had another size",
            notice=container_notice(EventReason.USAGE_RESTORED, text, owner),
            allocation=allocation_id,
            owner=owner or "unknown",
            bytes=f"{done.was_bytes}->{done.bytes}",
            problem=done.problem or "none",
        )
