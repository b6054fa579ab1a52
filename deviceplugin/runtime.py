"""The agent's clock, waits, locks, threads and chance: all of them come from here.

A test can `use` another runtime, in which one thread runs at a time and a seed says which. So no
other module of the agent takes them from Python itself; ruff sees to that (pyproject.toml). What
has sockets or processes of its own (the servers of `http`, the runner of MPS, the extender, the
webhook) is left out: no seed can say what those do.

What is made here belongs to the runtime that was in use then. The clocks ask at each call, so that
they may stand as the default of a parameter.
"""

import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import AbstractContextManager, contextmanager
from queue import Empty, Full, Queue
from typing import Any, Protocol

__all__ = ["Empty", "Full", "Queue"]

#: The longest wait of a condition, in seconds.
LONGEST_WAIT_S = threading.TIMEOUT_MAX


class Lock(AbstractContextManager[bool], Protocol):
    """What `threading.Lock` is."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Takes it; returns whether it has."""

    def release(self) -> None:
        """Gives it back."""

    def locked(self) -> bool:
        """Returns whether somebody has it."""


class Condition(AbstractContextManager[bool], Protocol):
    """What `threading.Condition` is."""

    def wait(self, timeout: float | None = None) -> bool:
        """Waits to be notified; returns whether it was."""

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        """Waits until the predicate holds, and returns what it returned last."""

    def notify(self, n: int = 1) -> None:
        """Wakes some of those who wait."""

    def notify_all(self) -> None:
        """Wakes all who wait."""


class Event(Protocol):
    """What `threading.Event` is."""

    def is_set(self) -> bool:
        """Returns whether it was set."""

    def set(self) -> None:
        """Wakes all who wait, now and later."""

    def clear(self) -> None:
        """Has those wait who come."""

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until it is set; returns whether it is."""


class Semaphore(AbstractContextManager[bool], Protocol):
    """What `threading.BoundedSemaphore` is."""

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> bool:
        """Takes a place; returns whether it has."""

    def release(self) -> None:
        """Gives a place back."""


class Thread(Protocol):
    """What `threading.Thread` is."""

    def start(self) -> None:
        """Begins."""

    def join(self, timeout: float | None = None) -> None:
        """Waits until it has ended."""

    def is_alive(self) -> bool:
        """Returns whether it runs."""


class Runtime:
    """Python's own; another one overrides all of it."""

    def monotonic(self) -> float:
        return time.monotonic()

    def epoch(self) -> float:
        return time.time()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def lock(self) -> Lock:
        return threading.Lock()

    def condition(self, lock: Lock | None = None) -> Condition:
        return threading.Condition(lock)  # type: ignore[arg-type]

    def event(self) -> Event:
        return threading.Event()

    def semaphore(self, places: int) -> Semaphore:
        return threading.BoundedSemaphore(places)

    def thread(self, target: Callable[..., object], args: tuple[Any, ...], name: str) -> Thread:
        return threading.Thread(target=target, args=args, name=name, daemon=True)

    def queue(self, longest: int) -> Queue[Any]:
        return Queue(longest)

    def pool(self, threads: int, name: str) -> futures.Executor:
        made = futures.ThreadPoolExecutor(threads, thread_name_prefix=name)
        all_there = threading.Barrier(threads + 1)  # made now, not one by one over the weeks
        for _ in range(threads):
            made.submit(all_there.wait)
        all_there.wait()
        return made

    def uniform(self, least: float, most: float) -> float:
        return random.uniform(least, most)  # noqa: S311 - a delay, no secret

    def random_bytes(self, count: int) -> bytes:
        return os.urandom(count)


_in_use = Runtime()


@contextmanager
def use(runtime: Runtime) -> Iterator[None]:
    """Puts another runtime in the place of Python's own for a while."""
    global _in_use
    before, _in_use = _in_use, runtime
    try:
        yield
    finally:
        _in_use = before


def monotonic() -> float:
    """Returns seconds, never back."""
    return _in_use.monotonic()


def epoch() -> float:
    """Returns seconds since 1970, which somebody may set."""
    return _in_use.epoch()


def sleep(seconds: float) -> None:
    """Lets so many seconds pass."""
    _in_use.sleep(seconds)


def lock() -> Lock:
    """Returns a lock that nobody has."""
    return _in_use.lock()


def condition(of: Lock | None = None) -> Condition:
    """Returns a condition, of a lock of its own where none is given."""
    return _in_use.condition(of)


def event() -> Event:
    """Returns an event that is not set."""
    return _in_use.event()


def semaphore(places: int) -> Semaphore:
    """Returns a semaphore with so many places, bounded."""
    return _in_use.semaphore(places)


def thread(target: Callable[..., object], name: str, args: tuple[Any, ...] = ()) -> Thread:
    """Returns a thread that has not begun; it keeps no process alive."""
    return _in_use.thread(target, args, name)


def new_queue(longest: int = 0) -> Queue[Any]:
    """Returns an empty queue; its calls raise `Empty` and `Full`.

    Args:
        longest: how many things it holds at most, 0 for any number.
    """
    return _in_use.queue(longest)


def pool(threads: int, name: str) -> futures.Executor:
    """Returns threads that take calls, all of them there."""
    return _in_use.pool(threads, name)


def uniform(least: float, most: float) -> float:
    """Returns a number by chance."""
    return _in_use.uniform(least, most)


def random_hex(count: int) -> str:
    """Returns so many bytes by chance, two digits each."""
    return _in_use.random_bytes(count).hex()
