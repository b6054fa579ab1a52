"""The agent's clock, locks and threads (`deviceplugin.runtime`), by the turns of a world."""

from collections import deque
from collections.abc import Callable
from concurrent import futures
from types import TracebackType
from typing import Any

from deviceplugin import runtime

from .turns import Turn, Turns

_EPOCH_S = 1.7e9


class _Held:
    """What is taken and given back by ``with``."""

    acquire: Callable[[], bool]
    release: Callable[[], None]

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


class Lock(_Held):
    """A lock; the seed says which of those who wait for it comes next."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._holder: Turn | None = None
        self._waiting: list[Turn] = []

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        turns = self._turns
        if turns.current.is_ending:
            return True
        turns.point("lock")
        until_s = None if timeout < 0 else turns.now_s + timeout
        while self._holder is not None and not self._holder.process.is_dead:
            if not blocking or (until_s is not None and turns.now_s >= until_s):
                return False
            self._waiting.append(turns.current)
            turns.wait(until_s)
        self._holder = turns.current
        return True

    def release(self) -> None:
        turns = self._turns
        if turns.current.is_ending:
            return
        assert self._holder is turns.current, "a lock is released by who does not hold it"
        self._holder = None
        for each in self._waiting:
            turns.wake(each)
        self._waiting.clear()

    def locked(self) -> bool:
        return self._holder is not None


class Condition(_Held):
    """A condition of a lock."""

    def __init__(self, turns: Turns, lock: Lock) -> None:
        self._turns, self._lock = turns, lock
        self._waiting: list[Turn] = []
        self.acquire, self.release = lock.acquire, lock.release

    def wait(self, timeout: float | None = None) -> bool:
        turns = self._turns
        until_s = None if timeout is None else turns.now_s + max(0.0, timeout)
        turn = turns.current
        self._waiting.append(turn)
        self._lock.release()
        was_woken = turns.wait(until_s)
        if not was_woken and turn in self._waiting:
            self._waiting.remove(turn)
        self._lock.acquire()
        return was_woken

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        until_s = None if timeout is None else self._turns.now_s + timeout
        while not (result := predicate()):
            left_s = None if until_s is None else until_s - self._turns.now_s
            if left_s is not None and left_s <= 0:
                break
            self.wait(left_s)
        return result

    def notify(self, n: int = 1) -> None:
        for _ in range(min(n, len(self._waiting))):
            self._turns.wake(self._waiting.pop(0))

    def notify_all(self) -> None:
        self.notify(len(self._waiting))


class Event:
    """An event."""

    def __init__(self, turns: Turns) -> None:
        self._turns, self._is_set = turns, False
        self._waiting: list[Turn] = []

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        for each in self._waiting:
            self._turns.wake(each)
        self._waiting.clear()

    def clear(self) -> None:
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        until_s = None if timeout is None else self._turns.now_s + timeout
        while not self._is_set and (until_s is None or self._turns.now_s < until_s):
            self._waiting.append(self._turns.current)
            self._turns.wait(until_s)
        return self._is_set


class Semaphore(_Held):
    """Places."""

    def __init__(self, turns: Turns, places: int) -> None:
        self._changed, self._places = Condition(turns, Lock(turns)), places

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> bool:
        with self._changed:
            wait_s = timeout if blocking else 0.0
            if not self._changed.wait_for(lambda: self._places > 0, wait_s):
                return False
            self._places -= 1
            return True

    def release(self) -> None:
        with self._changed:
            self._places += 1
            self._changed.notify()


class Queue:
    """What `queue.Queue` is."""

    def __init__(self, turns: Turns, longest: int) -> None:
        self._changed, self._longest = Condition(turns, Lock(turns)), longest
        self._things: deque[Any] = deque()

    def put(self, thing: Any) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._is_full())
            self._enter(thing)

    def put_nowait(self, thing: Any) -> None:
        with self._changed:
            if self._is_full():
                raise runtime.Full
            self._enter(thing)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        with self._changed:
            if not self._changed.wait_for(lambda: self._things, timeout if block else 0.0):
                raise runtime.Empty
            self._changed.notify_all()
            return self._things.popleft()

    def get_nowait(self) -> Any:
        return self.get(block=False)

    def empty(self) -> bool:
        return not self._things

    def qsize(self) -> int:
        return len(self._things)

    def _is_full(self) -> bool:
        return 0 < self._longest <= len(self._things)

    def _enter(self, thing: Any) -> None:
        self._things.append(thing)
        self._changed.notify_all()


class Thread:
    """A thread of whoever starts it."""

    def __init__(self, turns: Turns, work: Callable[[], object], name: str) -> None:
        self._turns, self._work, self._name = turns, work, name
        self._turn: Turn | None = None

    def start(self) -> None:
        self._turn = self._turns.begin(self._turns.current.process, self._work, self._name)

    def join(self, timeout: float | None = None) -> None:
        if self._turn is not None:
            self._turns.join(self._turn, timeout)

    def is_alive(self) -> bool:
        return self._turn is not None and not self._turn.has_ended


class _NoPool(futures.Executor):
    """Calls have threads of their own (`wire`)."""


class WorldRuntime(runtime.Runtime):
    """What the agent takes its time and its threads from.

    Attributes:
        clock_set_s: by how many seconds somebody has set the wall clock.
    """

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self.clock_set_s = 0.0

    def monotonic(self) -> float:
        return self._turns.now_s

    def epoch(self) -> float:
        return _EPOCH_S + self._turns.now_s + self.clock_set_s

    def sleep(self, seconds: float) -> None:
        self._turns.sleep(seconds)

    def lock(self) -> runtime.Lock:
        return Lock(self._turns)

    def condition(self, lock: runtime.Lock | None = None) -> runtime.Condition:
        assert lock is None or isinstance(lock, Lock)
        return Condition(self._turns, lock or Lock(self._turns))

    def event(self) -> runtime.Event:
        return Event(self._turns)

    def semaphore(self, places: int) -> runtime.Semaphore:
        return Semaphore(self._turns, places)

    def thread(
        self, target: Callable[..., object], args: tuple[Any, ...], name: str
    ) -> runtime.Thread:
        return Thread(self._turns, lambda: target(*args), name)

    def queue(self, longest: int) -> Any:
        return Queue(self._turns, longest)

    def pool(self, threads: int, name: str) -> futures.Executor:
        return _NoPool()

    def uniform(self, least: float, most: float) -> float:
        return self._turns.chance.uniform(least, most)

    def random_bytes(self, count: int) -> bytes:
        return self._turns.chance.randbytes(count)
