"""Asks NVML about several GPUs, and does not wait for a call that does not return.

A call of NVML for a sick GPU may hang in the kernel, where nothing ends it. So a thread of its own
asks about one GPU after the other. Where a question takes longer than the deadline, that thread is
left to itself and others ask about the GPUs that are left, all at once: the driver may hold a lock
for the call that hangs, and then every one of them waits for nothing. A GPU is not asked about
again before its thread has returned, so no GPU ever has more than one.

NVML is open around each round. A thread that hangs keeps it open in this process until it returns.
"""

from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from deviceplugin import runtime
from libvgpu.errors import InventoryError

#: A driver that has to load first takes a few seconds for each GPU.
CALL_DEADLINE_S = 10.0
_LOOK_EVERY_S = 0.05

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
#: Given NVML's bindings while NVML is open, returns what to ask of each GPU.
Plan = Callable[[Any], Mapping[K, Callable[[], T]]]


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """A call of NVML for a GPU has not returned; as text, a phrase.

    Attributes:
        because_of: the GPU whose call hung before this one; empty where none did.
    """

    because_of: str = ""

    def __str__(self) -> str:
        said = "a call of NVML for it does not return"
        if not self.because_of:
            return said
        return f"{said} while one for GPU {self.because_of} hangs, which NVML may wait for"


class NvmlHangsError(InventoryError):
    """NVML itself does not answer, for no GPU."""


class _Thread(Generic[K, T]):
    """One thread that asks; all fields are read and written under the lock of its `NvmlCalls`."""

    def __init__(self, change: runtime.Condition, clock: Callable[[], float]) -> None:
        self.answers: dict[K, T] = {}
        self.planned: tuple[K, ...] = ()
        self.left: dict[K, Callable[[], T]] = {}
        self.asked: K | None = None  # None while NVML is opened or closed
        self.error: Exception | None = None
        self.is_opened = self.is_ended = self.is_given_up = False
        self._change, self._clock = change, clock
        self.since_s = clock()

    def start(self, plan: Plan[K, T], but: Collection[K]) -> None:
        arguments = plan, frozenset(but)
        runtime.thread(target=self._run, args=arguments, name="nvml").start()

    def _run(self, plan: Plan[K, T], but: frozenset[K]) -> None:
        try:
            self._ask_all(plan, but)
        except Exception as error:  # it is raised where the answers are waited for
            self.error = error
        with self._change:
            self.is_ended = True
            self._change.notify_all()

    def _ask_all(self, plan: Plan[K, T], but: frozenset[K]) -> None:
        import pynvml  # late: tools that never ask for GPUs start faster

        pynvml.nvmlInit()
        try:
            questions = plan(pynvml)
            with self._change:
                self.planned = tuple(questions)
                self.left = {key: ask for key, ask in questions.items() if key not in but}
                self.is_opened = True
            while (question := self._next()) is not None:
                answer = question()
                with self._change:
                    if not self.is_given_up and self.asked is not None:
                        self.answers[self.asked] = answer
        finally:
            with self._change:
                self.asked, self.since_s = None, self._clock()
            pynvml.nvmlShutdown()

    def _next(self) -> Callable[[], T] | None:
        with self._change:
            if self.is_given_up or not self.left:
                return None
            self.asked, self.since_s = next(iter(self.left)), self._clock()
            return self.left.pop(self.asked)


class NvmlCalls(Generic[K]):
    """Asks about GPUs; `ask` from one thread at a time."""

    def __init__(
        self,
        deadline_s: float | None = None,
        clock: Callable[[], float] = runtime.monotonic,
    ) -> None:
        """Asks nothing yet.

        Args:
            deadline_s: for each question; `CALL_DEADLINE_S` where nothing is said.
            clock: seconds, never back; a test may have it stand still.
        """
        self._deadline_s = CALL_DEADLINE_S if deadline_s is None else deadline_s
        self._clock = clock
        self._change = runtime.condition()
        self._hung: dict[K, _Thread[K, Any]] = {}  # in the order in which they began to
        self._stuck: list[_Thread[K, Any]] = []  # while NVML is opened or closed

    def ask(self, plan: Plan[K, T]) -> dict[K, T | NoAnswer]:
        """Returns an answer for each GPU of the plan.

        Raises:
            NvmlHangsError: NVML itself does not answer.
            NVMLError: it cannot be opened, or what the plan or a question raises.
        """
        with self._change:
            self._forget_ended()
            if self._stuck:
                raise self._hangs()
            first = self._start(plan, self._hung)
            found: dict[K, T] = {}
            threads = [first]
            for thread in threads:  # more come behind one that hangs; those ask all at once
                self._wait_for(thread)
                if thread.error is not None:
                    raise thread.error
                found |= thread.answers
                if thread.is_given_up:
                    threads += [self._start(_only(key, ask)) for key, ask in thread.left.items()]
            if not first.is_opened:
                raise self._hangs()
            return {key: found[key] if key in found else self._none(key) for key in first.planned}

    def hanging(self) -> dict[K, NoAnswer]:
        """Returns the GPUs for which a call hangs now; from any thread."""
        with self._change:
            self._forget_ended()
            return {key: self._none(key) for key in self._hung}

    def _start(self, plan: Plan[K, T], but: Collection[K] = ()) -> _Thread[K, T]:
        thread: _Thread[K, T] = _Thread(self._change, self._clock)
        thread.start(plan, but)
        return thread

    def _wait_for(self, thread: _Thread[K, Any]) -> None:
        """Waits until a thread has ended, or gives it up where it is late."""
        while not thread.is_ended:
            if self._clock() - thread.since_s > self._deadline_s:
                thread.is_given_up = True
                if thread.asked is None:
                    self._stuck.append(thread)
                else:
                    self._hung[thread.asked] = thread
                return
            self._change.wait(_LOOK_EVERY_S)

    def _forget_ended(self) -> None:
        self._hung = {key: thread for key, thread in self._hung.items() if not thread.is_ended}
        self._stuck = [thread for thread in self._stuck if not thread.is_ended]

    def _none(self, key: K) -> NoAnswer:
        first = next(iter(self._hung), key)
        return NoAnswer("" if first == key else str(first))

    def _hangs(self) -> NvmlHangsError:
        first = next(iter(self._hung), None)
        which = "a call does" if first is None else f"it may wait for one for GPU {first} that does"
        return NvmlHangsError(f"NVML does not answer: {which} not return")


def _only(key: K, ask: Callable[[], T]) -> Plan[K, T]:
    return lambda pynvml: {key: ask}


def ask_once(question: Callable[[Any], T]) -> T:
    """Returns what NVML says to a question that is about no GPU.

    Args:
        question: given NVML's bindings while NVML is open.

    Raises:
        NvmlHangsError: it does not answer.
        NVMLError: it cannot be opened, or what the question raises.
    """
    calls: NvmlCalls[str] = NvmlCalls()
    answer = calls.ask(lambda pynvml: {"": lambda: question(pynvml)})[""]
    if isinstance(answer, NoAnswer):
        raise NvmlHangsError("NVML does not answer: a call does not return")
    return answer
