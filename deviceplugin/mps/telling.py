"""Tells pods and log what happened to MPS, from one state of the runner to the next.

What ends the work of all clients of a GPU's server is told to the pods that had processes there,
each by an Event of its own. MPS does not say who was at fault, so nobody is accused. Used by one
thread.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from deviceplugin import runtime
from deviceplugin.log import event
from deviceplugin.model.allocations import Owner
from deviceplugin.model.notices import EventReason, container_notice, node_notice

from .state_files import FAILED, GpuMps

#: Who had processes so lately may have lost them by what is told now: the runner looks for faults
#: every `gpu_worker.LOOK_EVERY_S`, and the agent at what the runner says.
_LATELY_S = 10.0


class Tenants(Protocol):
    """Knows who has slices of a GPU."""

    def tenants_on(self, uuid: str) -> Sequence[tuple[str, Owner | None]]:
        """Returns the allocations on a GPU with their owners, None for one not yet known."""
        ...


class MpsTelling:
    """What was told already, and who would be concerned by what comes."""

    def __init__(
        self,
        tenants: Tenants,
        is_running: Callable[[str], bool],
        clock: Callable[[], float] = runtime.monotonic,
    ) -> None:
        """Has told nothing yet; what the first state says is old.

        Args:
            is_running: whether processes of an allocation live.
            clock: seconds, never back.
        """
        self._tenants, self._is_running, self._clock = tenants, is_running, clock
        self._told: Mapping[str, GpuMps] | None = None
        self._ran_at_s: dict[str, float] = {}  # when an allocation was last seen with processes

    def follow(self, now: Mapping[str, GpuMps]) -> None:
        """Tells what is new in the runner's state."""
        self._see_who_runs(now)
        before, self._told = self._told, now
        for uuid, gpu in now.items():
            old = None if before is None else before.get(uuid, GpuMps(""))
            if gpu.phase == FAILED and (old is None or old.reason != gpu.reason):
                event(
                    logging.ERROR,
                    "MPS of a GPU cannot be served",
                    notice=node_notice(EventReason.MPS_UNAVAILABLE, gpu.reason),
                    gpu=uuid,
                    reason=gpu.reason,
                )
            if old is not None:
                self._tell_changes(uuid, old, gpu)

    def _see_who_runs(self, uuids: Iterable[str]) -> None:
        now_s = self._clock()
        seen = {
            each: now_s
            for uuid in uuids
            for each, _ in self._tenants.tenants_on(uuid)
            if self._is_running(each)
        }
        lately = {a: at_s for a, at_s in self._ran_at_s.items() if now_s - at_s <= _LATELY_S}
        self._ran_at_s = lately | seen

    def _tell_changes(self, uuid: str, old: GpuMps, gpu: GpuMps) -> None:
        if gpu.restarts > old.restarts:
            self._tell_clients(
                uuid,
                EventReason.MPS_SERVER_ENDED,
                "MPS server ended, its clients lost their work",
                f"the MPS server of GPU {uuid} ended by itself and was started again; all its "
                "clients lost their work, and MPS does not say whether one of them ended it",
            )
        if gpu.faults > old.faults:
            self._tell_clients(
                uuid,
                EventReason.MPS_CLIENT_FAULT,
                "a fault of one MPS client ended the work of all of them",
                f"a fatal fault of one client of the MPS server of GPU {uuid} ended the work of "
                "all its clients; MPS does not say whose it was, and takes no new clients until "
                "these have ended",
            )
        if gpu.restored > old.restored:
            reason = (
                f"settings of the MPS server of GPU {uuid} were changed through its pipe and "
                "put back"
            )
            event(
                logging.WARNING,
                "MPS settings were changed and put back",
                notice=node_notice(EventReason.MPS_SETTINGS_RESTORED, reason),
                gpu=uuid,
                reason=reason,
            )

    def _tell_clients(self, uuid: str, why: EventReason, what: str, reason: str) -> None:
        """Tells those that have processes, or had some lately.

        A process that came and ended between two looks is missed, and one that began afterwards is
        told, too: its predecessor's end mostly is why it began.
        """
        tenants = self._tenants.tenants_on(uuid)
        owners = [owner for each, owner in tenants if each in self._ran_at_s]
        for owner in owners or [None]:
            event(
                logging.ERROR,
                what,
                notice=container_notice(why, reason, owner),
                gpu=uuid,
                owner=owner or "unknown",
                reason=reason,
            )
