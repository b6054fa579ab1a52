"""The thread that follows the health of GPUs: NVML's events, and a question every few seconds.

A thread of its own, since a wait for events blocks. After trouble NVML is opened again: a process
that saw a GPU fall off the bus does not see it come back otherwise. Whoever wants to know is called
in this thread, whenever what is unhealthy has changed.
"""

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from deviceplugin.log import LOGGER
from libvgpu.errors import VgpuError

from .counted_xids import CountedXids
from .health import Verdicts
from .nvml_answers import text
from .watched_gpu import WatchedGpu, address, find, meant_by, problem_of

POLL_S = 5.0
#: An event ends the wait at once; this bounds how long a stop is noticed late.
_WAIT_MS = 1000
_PAUSE_S = 1.0

Tell = Callable[[Mapping[str, str]], None]
#: Whether an XID counts against its GPU.
Counts = Callable[[int], bool]


class HealthWatch:
    """Follows the GPUs of a node from `start` to `stop`."""

    def __init__(
        self,
        uuids: Sequence[str],
        tell: Tell,
        poll_s: float = POLL_S,
        counts: Counts = CountedXids().counts,  # noqa: B008
    ) -> None:
        """Makes a watch that does not run yet.

        Args:
            uuids: of the GPUs and MIG devices to follow.
            tell: told why each unhealthy GPU is unhealthy, by UUID, after every change.
            poll_s: seconds between two questions.
            counts: which XIDs do.
        """
        self._counts = counts
        self._uuids, self._tell, self._poll_s = tuple(uuids), tell, poll_s
        self._verdicts = Verdicts()
        self._told: Mapping[str, str] = {}
        self._stop = threading.Event()
        self._changed = threading.Event()  # others are to be followed, or none any more
        self._thread = threading.Thread(target=self._run, name="health", daemon=True)

    def start(self) -> None:
        """Begins; without GPUs there is nothing to ask NVML for."""
        self._thread.start()

    def follow(self, uuids: Sequence[str]) -> None:
        """Follows other GPUs, from the next question on."""
        if tuple(uuids) != self._uuids:
            self._uuids = tuple(uuids)
            self._changed.set()

    def look_closer(self) -> None:
        """Opens NVML again: while it is open here, nobody in this process sees a GPU come back that
        was seen to fail.
        """
        self._changed.set()

    def stop(self) -> None:
        """Reports nothing any more; the thread ends by itself within `_WAIT_MS`."""
        self._stop.set()
        self._changed.set()

    def _run(self) -> None:
        import pynvml  # late: tools that never ask for GPUs start faster

        while not self._stop.is_set():
            self._changed.clear()
            if not self._uuids:
                self._say()
                self._changed.wait()
                continue
            try:
                self._follow(pynvml, self._uuids)
                continue  # at once: events that come while NVML is closed are told to nobody
            except Exception as error:  # whatever NVML's bindings raise, health is asked for again
                if not isinstance(error, pynvml.NVMLError):
                    LOGGER.exception("the health of the GPUs could not be asked for")
                for uuid in self._uuids:
                    self._verdicts.note_answer(uuid, f"NVML says: {error}")
                self._say()
            self._stop.wait(min(_PAUSE_S, self._poll_s))

    def _follow(self, pynvml: Any, uuids: Sequence[str]) -> None:
        """Asks and listens until something is wrong with a GPU, others are to be followed, or to
        the end.
        """
        pynvml.nvmlInit()
        try:
            gpus, healthy = [], []
            for uuid in uuids:
                try:
                    gpu = find(pynvml, uuid)
                except pynvml.NVMLError as error:
                    self._verdicts.note_answer(uuid, f"NVML says: {error}")
                    continue
                problem = problem_of(pynvml, gpu)
                self._verdicts.note_answer(uuid, problem)
                gpus.append(gpu)
                if not problem:  # a wait that has a lost one in its set answers nothing else
                    healthy.append(gpu)
            events = _register(pynvml, healthy)
            try:
                self._listen(pynvml, gpus, events)
            finally:
                if events is not None:
                    pynvml.nvmlEventSetFree(events)
        finally:
            pynvml.nvmlShutdown()

    def _listen(self, pynvml: Any, gpus: Collection[WatchedGpu], events: Any) -> None:
        asked_s = time.monotonic()
        self._say()
        while not self._stop.is_set():
            pause_s = 0.0
            try:
                is_due = self._note_event(pynvml, gpus, events)
            except pynvml.NVMLError as error:
                LOGGER.debug("NVML's events: %s", error)
                is_due, pause_s = True, _PAUSE_S  # the question says which GPU it is
            self._say()
            if self._changed.is_set():
                return
            if not is_due and time.monotonic() - asked_s < self._poll_s:
                continue
            asked_s = time.monotonic()
            for gpu in gpus:
                self._verdicts.note_answer(gpu.uuid, problem_of(pynvml, gpu))
            self._say()
            if self._told or len(gpus) < len(self._uuids):
                return
            self._stop.wait(pause_s)

    def _note_event(self, pynvml: Any, gpus: Collection[WatchedGpu], events: Any) -> bool:
        """Waits for an event a while; returns whether there was one that counts."""
        wait_ms = int(min(_WAIT_MS, self._poll_s * 1000))
        if events is None:
            self._stop.wait(wait_ms / 1000)
            return False
        try:
            event = pynvml.nvmlEventSetWait_v2(events, wait_ms)
        except pynvml.NVMLError_Timeout:
            return False
        xid = int(event.eventData)
        if event.eventType != pynvml.nvmlEventTypeXidCriticalError or not self._counts(xid):
            return False
        for uuid in meant_by(event, gpus) or self._placed(pynvml, event, gpus):
            self._verdicts.note_xid(uuid, xid, time.monotonic())
        return True

    def _placed(self, pynvml: Any, event: Any, gpus: Collection[WatchedGpu]) -> Collection[str]:
        """Returns whom an event means that means no GPU by its handle and instances.

        One of a GPU or MIG device that is not followed means none. What NVML cannot place at all is
        of the GPU that fails now, and may be any one's where all answer.
        """
        if any(address(gpu.gpu_handle) == address(event.device) for gpu in gpus):
            return ()
        try:
            uuid = text(pynvml.nvmlDeviceGetUUID(event.device))
        except pynvml.NVMLError:
            sick = [gpu.uuid for gpu in gpus if problem_of(pynvml, gpu)]
            return sick or self._uuids
        return (uuid,) if uuid in self._uuids else ()

    def _say(self) -> None:
        found = self._verdicts.unhealthy(time.monotonic())
        unhealthy = {uuid: why for uuid, why in found.items() if uuid in self._uuids}
        if unhealthy == self._told or self._stop.is_set():
            return
        try:
            self._tell(unhealthy)
        except VgpuError as error:
            LOGGER.error("%s", error.message)
            return
        self._told = unhealthy


def _register(pynvml: Any, gpus: Iterable[WatchedGpu]) -> Any:
    """Returns an event set for critical errors, None where this driver has none."""
    try:
        events = pynvml.nvmlEventSetCreate()
    except pynvml.NVMLError:
        return None
    for handle in {address(gpu.gpu_handle): gpu.gpu_handle for gpu in gpus}.values():
        try:
            pynvml.nvmlDeviceRegisterEvents(handle, pynvml.nvmlEventTypeXidCriticalError, events)
        except pynvml.NVMLError as error:
            LOGGER.debug("no events of a GPU: %s", error)
    return events
