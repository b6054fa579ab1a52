"""The thread that follows the health of GPUs: NVML's events, and a question every few seconds.

It has NVML to itself, since a wait for events blocks. After trouble NVML is opened again: a process
that saw a GPU fall off the bus does not see it come back otherwise. Whoever wants to know is called
in this thread, whenever what is unhealthy has changed.
"""

import ctypes
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from deviceplugin.log import LOGGER
from libvgpu.errors import VgpuError

from .health import Verdicts

POLL_S = 5.0
#: An event ends the wait at once; this bounds how long a stop is noticed late.
_WAIT_MS = 1000
_PAUSE_S = 1.0

Tell = Callable[[Mapping[str, str]], None]


class HealthWatch:
    """Follows the GPUs of a node from `start` to `stop`."""

    def __init__(self, uuids: Sequence[str], tell: Tell, poll_s: float = POLL_S) -> None:
        """Makes a watch that does not run yet.

        Args:
            tell: told why each unhealthy GPU is unhealthy, by UUID, after every change.
            poll_s: seconds between two questions.
        """
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
            handles = {}
            for uuid in uuids:
                problem, handle = self._find(pynvml, uuid)
                self._verdicts.note_answer(uuid, problem)
                if handle is not None:
                    handles[uuid] = handle
            events = _register(pynvml, handles.values())
            try:
                self._listen(pynvml, handles, events)
            finally:
                if events is not None:
                    pynvml.nvmlEventSetFree(events)
        finally:
            pynvml.nvmlShutdown()

    def _find(self, pynvml: Any, uuid: str) -> tuple[str, Any]:
        try:
            handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        except pynvml.NVMLError as error:
            return f"NVML says: {error}", None
        return _problem(pynvml, handle), handle

    def _listen(self, pynvml: Any, handles: Mapping[str, Any], events: Any) -> None:
        by_address = {_address(handle): uuid for uuid, handle in handles.items()}
        asked_s = time.monotonic()
        self._say()
        while not self._stop.is_set():
            try:
                self._note_event(pynvml, by_address, events)
            except pynvml.NVMLError as error:
                LOGGER.debug("NVML's events: %s", error)
                self._stop.wait(_PAUSE_S)
                asked_s = 0.0  # the next question says which GPU it is
            self._say()
            if self._changed.is_set():
                return
            if time.monotonic() - asked_s < self._poll_s:
                continue
            asked_s = time.monotonic()
            for uuid, handle in handles.items():
                self._verdicts.note_answer(uuid, _problem(pynvml, handle))
            self._say()
            if self._told or len(handles) < len(self._uuids):
                return

    def _note_event(self, pynvml: Any, by_address: Mapping[int, str], events: Any) -> None:
        wait_ms = int(min(_WAIT_MS, self._poll_s * 1000))
        if events is None:
            self._stop.wait(wait_ms / 1000)
            return
        try:
            event = pynvml.nvmlEventSetWait_v2(events, wait_ms)
        except pynvml.NVMLError_Timeout:
            return
        if event.eventType != pynvml.nvmlEventTypeXidCriticalError:
            return
        uuid = by_address.get(_address(event.device))
        # What NVML cannot place may be any GPU's.
        for each in (uuid,) if uuid is not None else self._uuids:
            self._verdicts.note_xid(each, int(event.eventData), time.monotonic())

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


def _register(pynvml: Any, handles: Any) -> Any:
    """Returns an event set for critical errors, None where this driver has none."""
    try:
        events = pynvml.nvmlEventSetCreate()
    except pynvml.NVMLError:
        return None
    for handle in handles:
        try:
            pynvml.nvmlDeviceRegisterEvents(handle, pynvml.nvmlEventTypeXidCriticalError, events)
        except pynvml.NVMLError as error:
            LOGGER.debug("no events of a GPU: %s", error)
    return events


def _problem(pynvml: Any, handle: Any) -> str:
    """Returns what is wrong with a GPU as NVML says, empty where it is healthy."""
    try:
        pynvml.nvmlDeviceGetMemoryInfo(handle)  # needs the GPU itself, unlike its UUID
    except pynvml.NVMLError as error:
        return f"NVML says: {error}"
    try:
        (value,) = pynvml.nvmlDeviceGetFieldValues(
            handle, [pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION]
        )
    except (pynvml.NVMLError, AttributeError):
        return ""
    if value.nvmlReturn != pynvml.NVML_SUCCESS or not value.value.uiVal:
        return ""
    return f"NVML asks for recovery action {value.value.uiVal}"


def _address(handle: Any) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value or 0
