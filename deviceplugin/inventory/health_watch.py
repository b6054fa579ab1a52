"""The thread that follows the health of GPUs: NVML's events, and a question every few seconds.

It makes no call of NVML itself, since one may never return: others ask (`nvml_calls`) and wait for
events (`event_listener`). A GPU for which a call hangs is unhealthy until the call returns; the
others are followed all the same. Where a wait for events hangs that is for no GPU, another one is
begun, once; then the questions are all there is until one of the two returns.

After trouble NVML is opened again: a process that saw a GPU fall off the bus does not see it come
back otherwise. Whoever wants to know is called in this thread, whenever what is unhealthy has
changed.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from deviceplugin import runtime
from deviceplugin.log import LOGGER, event
from libvgpu.errors import VgpuError

from .counted_xids import CountedXids
from .event_listener import WAIT_MS, EventListener, Inbox, Trouble
from .health import Verdicts
from .nvml_calls import CALL_DEADLINE_S, NoAnswer, NvmlCalls
from .watched_gpu import find, problem_of

POLL_S = 5.0
_PAUSE_S = 1.0
_LOOK_EVERY_S = 0.05
#: Listeners that hang, before no further one is begun.
_MOST_HANGING = 2

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
        hanging: Callable[[], Mapping[str, str]] = dict,
        turned: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = runtime.monotonic,
    ) -> None:
        """Makes a watch that does not run yet.

        Args:
            uuids: of the GPUs and MIG devices to follow.
            tell: told why each unhealthy GPU is unhealthy, by UUID, after every change.
            poll_s: seconds between two questions.
            counts: which XIDs do.
            hanging: why a GPU is unhealthy for which a call hangs that somebody else made.
            turned: called each time the watch comes round.
            clock: of deadlines: seconds, never back.
        """
        self._counts, self._hanging, self._turned = counts, hanging, turned
        self._uuids, self._tell, self._poll_s = tuple(uuids), tell, poll_s
        self._clock = clock
        self._calls: NvmlCalls[str] = NvmlCalls(clock=clock)
        self._verdicts = Verdicts()
        self._told: Mapping[str, str] = {}
        self._stop = runtime.event()
        self._changed = runtime.event()  # others are to be followed, or none any more
        self._inbox: Inbox = runtime.new_queue()
        self._listener: EventListener | None = None
        self._hung: list[EventListener] = []
        self._is_deaf = False
        self._thread = runtime.thread(target=self._run, name="health")

    def start(self) -> None:
        """Begins; without GPUs there is nothing to ask NVML for."""
        self._thread.start()

    def follow(self, uuids: Sequence[str]) -> None:
        """Follows other GPUs, from the next question on."""
        if tuple(uuids) != self._uuids:
            self._uuids = tuple(uuids)
            self.look_closer()

    def look_closer(self) -> None:
        """Opens NVML again: while it is open here, nobody in this process sees a GPU come back that
        was seen to fail.
        """
        self._changed.set()
        self._inbox.put(None)

    def stop(self) -> None:
        """Reports nothing any more; the threads end by themselves within `WAIT_MS`."""
        self._stop.set()
        self.look_closer()

    def _run(self) -> None:
        import pynvml  # late: tools that never ask for GPUs start faster

        while not self._stop.is_set():
            self._turned()
            uuids = self._uuids
            if self._told or self._changed.is_set():
                self._end_listener()
                self._changed.clear()
            try:
                self._follow(uuids)
            except Exception as error:  # whatever NVML's bindings raise, health is asked for again
                if not isinstance(error, (pynvml.NVMLError, VgpuError)):
                    LOGGER.exception("the health of the GPUs could not be asked for")
                said = error.message if isinstance(error, VgpuError) else f"NVML says: {error}"
                for uuid in uuids:
                    self._verdicts.note_answer(uuid, said)
                self._say()
                self._end_listener()
                self._stop.wait(min(_PAUSE_S, self._poll_s))
        if self._listener is not None:
            self._listener.end()

    def _follow(self, uuids: Sequence[str]) -> None:
        """Asks, and listens until it is time to ask again."""
        if uuids:
            self._ask(uuids)
        self._say()
        if self._listener is not None and self._told:
            return  # to ask at once, with NVML opened again
        if self._listener is None and uuids:
            self._listen(uuids)
        self._wait()

    def _ask(self, uuids: Sequence[str]) -> None:
        answers = self._calls.ask(
            lambda pynvml: {uuid: partial(_problem, pynvml, uuid) for uuid in uuids}
        )
        hanging = self._all_hanging()
        for uuid, answer in answers.items():
            self._verdicts.note_answer(uuid, str(answer) or hanging.get(uuid, ""))

    def _all_hanging(self) -> dict[str, str]:
        """Returns why a GPU is unhealthy for which any call hangs."""
        self._hung = [each for each in self._hung if not each.is_ended]
        listeners = {each.at: str(NoAnswer()) for each in self._hung if each.at}
        asked = {uuid: str(answer) for uuid, answer in self._calls.hanging().items()}
        return {**listeners, **self._hanging(), **asked}

    def _wait(self) -> None:
        """Takes what the listener says, until the GPUs are to be asked again."""
        until_s = runtime.monotonic() + self._poll_s
        while not self._changed.is_set() and (left_s := until_s - runtime.monotonic()) > 0:
            if self._is_listener_late():
                return
            try:
                said = self._inbox.get(timeout=min(left_s, WAIT_MS / 1000))
            except runtime.Empty:
                continue
            if isinstance(said, Trouble):
                if self._listener is not None and self._listener.is_ended:
                    self._listener = None
                    self._stop.wait(min(_PAUSE_S, self._poll_s))
                return
            if said is None or not self._counts(said.xid):
                continue
            meant = said.uuids
            if meant is None:
                meant = self._failing() or self._uuids
            for uuid in meant:
                self._verdicts.note_xid(uuid, said.xid, runtime.monotonic())
            self._say()
            return

    def _failing(self) -> list[str]:
        """Returns the GPUs that fail now; an error that NVML cannot place is of one of them."""
        self._ask(self._uuids)
        return [uuid for uuid in self._uuids if self._verdicts.has_problem(uuid)]

    def _listen(self, uuids: Sequence[str]) -> None:
        hanging = self._all_hanging()
        is_deaf = len(self._hung) >= _MOST_HANGING
        if not is_deaf:
            well = [uuid for uuid in uuids if not self._verdicts.has_problem(uuid)]
            followed = [uuid for uuid in uuids if uuid not in hanging]
            self._listener = EventListener(well, followed, self._inbox, self._poll_s, self._clock)
        self._say_deaf(is_deaf)

    def _say_deaf(self, is_deaf: bool) -> None:
        if is_deaf and not self._is_deaf:
            event(logging.WARNING, "a wait for NVML's events does not return, XIDs are not seen")
        elif self._is_deaf and not is_deaf:
            event(logging.INFO, "NVML's events are waited for again")
        self._is_deaf = is_deaf

    def _end_listener(self) -> None:
        """Has the listener close NVML, and waits for that, but not for ever."""
        listener = self._listener
        if listener is None:
            return
        listener.end()
        while not (listener.is_ended or self._is_listener_late() or self._stop.is_set()):
            runtime.sleep(_LOOK_EVERY_S)
        self._listener = None

    def _is_listener_late(self) -> bool:
        """Returns whether the listener hangs; then it is left to itself."""
        listener = self._listener
        if listener is None or listener.late_s() <= CALL_DEADLINE_S:
            return False
        listener.end()
        self._hung.append(listener)
        self._listener = None
        return True

    def _say(self) -> None:
        found = self._verdicts.unhealthy(runtime.monotonic())
        unhealthy = {uuid: why for uuid, why in found.items() if uuid in self._uuids}
        if unhealthy == self._told or self._stop.is_set():
            return
        try:
            self._tell(unhealthy)
        except VgpuError as error:
            LOGGER.error("%s", error.message)
            return
        self._told = unhealthy


def _problem(pynvml: Any, uuid: str) -> str:
    """Returns what is wrong with a GPU as NVML says, empty where it is healthy."""
    try:
        return problem_of(pynvml, find(pynvml, uuid))
    except pynvml.NVMLError as error:
        return f"NVML says: {error}"
