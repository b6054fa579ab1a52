"""The thread that waits for NVML's events, apart from the health watch: a wait may not return.

It has NVML open while it runs, registers for critical errors of some GPUs, and puts what it learns
into the inbox of the health watch. It is told to end and never waited for without a bound.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from deviceplugin import runtime
from deviceplugin.log import LOGGER

from .nvml_answers import text
from .watched_gpu import WatchedGpu, address, find, meant_by

#: An event ends a wait at once; this bounds how long an end is noticed late.
WAIT_MS = 1000
_PAUSE_S = 1.0


@dataclass(frozen=True, slots=True)
class XidSeen:
    """A critical error.

    Attributes:
        uuids: of the GPUs and MIG devices that it means; None where NVML cannot place it.
    """

    xid: int
    uuids: Collection[str] | None


@dataclass(frozen=True, slots=True)
class Trouble:
    """A wait failed, or all of it: how the GPUs are should be asked."""


Inbox = runtime.Queue[XidSeen | Trouble | None]


class EventListener:
    """Listens from its making to `end`.

    Attributes:
        at: the GPU that it makes a call for; empty while it waits for events of all.
        is_ended: its thread makes no call any more.
    """

    def __init__(
        self,
        uuids: Sequence[str],
        followed: Collection[str],
        inbox: Inbox,
        wait_s: float,
        clock: Callable[[], float] = runtime.monotonic,
    ) -> None:
        """Begins.

        Args:
            uuids: of those to register for; a wait that has a lost one among them answers nothing
                else.
            followed: of all that the health watch follows.
            inbox: takes what is learnt.
            wait_s: for how long one wait lasts at most.
            clock: seconds, never back.
        """
        self.at, self.is_ended = "", False
        self._uuids, self._followed, self._inbox = frozenset(uuids), tuple(followed), inbox
        self._wait_ms = int(min(WAIT_MS, wait_s * 1000))
        self._clock, self._since_s = clock, clock()
        self._stop = runtime.event()
        runtime.thread(target=self._run, name="nvml events").start()

    def end(self) -> None:
        """Has it end after the call that it is in."""
        self._stop.set()

    def late_s(self) -> float:
        """Returns for how long its call has been going on; 0 where it makes none."""
        return 0.0 if self.is_ended else self._clock() - self._since_s

    def _run(self) -> None:
        import pynvml  # late: tools that never ask for GPUs start faster

        try:
            self._listen(pynvml)
        except Exception as error:  # whatever the bindings raise, the GPUs are asked again
            if not isinstance(error, pynvml.NVMLError):
                LOGGER.exception("NVML's events could not be waited for")
            self._inbox.put(Trouble())
        self.is_ended = True

    def _listen(self, pynvml: Any) -> None:
        pynvml.nvmlInit()
        try:
            gpus = list(self._found(pynvml, self._followed))
            events = self._registered(pynvml, [gpu for gpu in gpus if gpu.uuid in self._uuids])
            try:
                while not self._stop.is_set():
                    self._note_call()
                    self._wait(pynvml, gpus, events)
            finally:
                if events is not None:
                    pynvml.nvmlEventSetFree(events)
        finally:
            self._note_call()
            pynvml.nvmlShutdown()

    def _note_call(self, uuid: str = "") -> None:
        self._since_s, self.at = self._clock(), uuid

    def _found(self, pynvml: Any, uuids: Iterable[str]) -> Iterable[WatchedGpu]:
        for uuid in uuids:
            self._note_call(uuid)
            try:
                yield find(pynvml, uuid)
            except pynvml.NVMLError:
                continue  # the health watch asks, and knows why

    def _registered(self, pynvml: Any, gpus: Iterable[WatchedGpu]) -> Any:
        """Returns an event set for critical errors, None where this driver has none."""
        try:
            events = pynvml.nvmlEventSetCreate()
        except pynvml.NVMLError:
            return None
        for gpu in {address(gpu.gpu_handle): gpu for gpu in gpus}.values():
            self._note_call(gpu.uuid)
            try:
                pynvml.nvmlDeviceRegisterEvents(
                    gpu.gpu_handle, pynvml.nvmlEventTypeXidCriticalError, events
                )
            except pynvml.NVMLError as error:
                LOGGER.debug("no events of a GPU: %s", error)
        return events

    def _wait(self, pynvml: Any, gpus: Collection[WatchedGpu], events: Any) -> None:
        if events is None:
            self._stop.wait(self._wait_ms / 1000)
            return
        try:
            event = pynvml.nvmlEventSetWait_v2(events, self._wait_ms)
        except pynvml.NVMLError_Timeout:
            return
        except pynvml.NVMLError as error:
            LOGGER.debug("NVML's events: %s", error)
            self._inbox.put(Trouble())
            self._note_call()
            self._stop.wait(_PAUSE_S)
            return
        if event.eventType == pynvml.nvmlEventTypeXidCriticalError:
            meant = meant_by(event, gpus) or self._placed(pynvml, event, gpus)
            self._inbox.put(XidSeen(int(event.eventData), meant))

    def _placed(
        self, pynvml: Any, event: Any, gpus: Collection[WatchedGpu]
    ) -> Collection[str] | None:
        """Returns whom an event means that means no GPU by its handle and instances.

        One of a GPU or MIG device that is not followed means none; None where NVML cannot tell.
        """
        if any(address(gpu.gpu_handle) == address(event.device) for gpu in gpus):
            return ()
        self._note_call()
        try:
            uuid = text(pynvml.nvmlDeviceGetUUID(event.device))
        except pynvml.NVMLError:
            return None
        return (uuid,) if uuid in self._followed else ()
